module github.com/nncuda/nncuda/examples/embed-go

go 1.24

require github.com/nncuda/nncuda/go v0.0.0

require (
	golang.org/x/text v0.23.0 // indirect
	google.golang.org/protobuf v1.36.12 // indirect
)

replace github.com/nncuda/nncuda/go => ../../go
