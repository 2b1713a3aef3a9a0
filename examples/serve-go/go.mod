module github.com/nncuda/nncuda/examples/serve-go

go 1.24

require github.com/nncuda/nncuda/go v0.0.0

require (
	golang.org/x/exp v0.0.0-20250620022241-b7579e27df2b // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace github.com/nncuda/nncuda/go => ../../go
