module github.com/nncuda/nncuda/go

go 1.24
