package main

import (
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
)

func TestVerdict(t *testing.T) {
	for _, of := range []struct {
		told cuda.Shadow
		says string
	}{
		{cuda.Shadow{Calls: 9, Compared: 8}, ""},
		{cuda.Shadow{Calls: 9, Compared: 8, Over: 1}, "1 of 8 calls are beyond their bound"},
		{cuda.Shadow{Calls: 9}, "no call could be compared"},
	} {
		err := verdict(&of.told)
		if (err == nil) != (of.says == "") || err != nil && (err.Error() != of.says || exitCode(err) != exitFailed) {
			t.Errorf("%+v: %v, not %q", of.told, err, of.says)
		}
	}
}
