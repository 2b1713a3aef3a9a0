module github.com/nncuda/nncuda/go

go 1.24

require (
	golang.org/x/exp v0.0.0-20250620022241-b7579e27df2b
	google.golang.org/protobuf v1.36.12
)
