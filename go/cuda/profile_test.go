package cuda_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/nncuda/nncuda/go/cuda"
	"github.com/nncuda/nncuda/go/internal/must"
)

func TestProfile(t *testing.T) {
	ctx := newContext(t)
	x := filled(t, ctx, 4096)
	must.Do(t, errors.Join(
		ctx.BeginProfile(),
		ctx.Add(x.At(0), x.At(0), x.At(0), 1024, cuda.F32),
		ctx.Fill(x.At(0), 1024, 1, cuda.F32),
		ctx.EndProfile(),
		ctx.Fill(x.At(0), 1024, 1, cuda.F32),
	))
	table, err := ctx.ProfileReport(cuda.ReportTable)
	if err != nil || !strings.Contains(table, "add") || !strings.Contains(table, "fill") {
		t.Errorf("the table is %q (%v)", table, err)
	}
	for _, form := range []cuda.ReportForm{cuda.ReportJSON, cuda.ReportChromeTrace} {
		text, err := ctx.ProfileReport(form)
		if err != nil || !json.Valid([]byte(text)) || !strings.Contains(text, "add") {
			t.Errorf("report %d is %q (%v)", form, text, err)
		}
	}
	must.Refuse(t, must.Err(ctx.ProfileReport(99)), cuda.ErrInvalidValue, "form")
	must.Refuse(t, ctx.EndProfile(), cuda.ErrState, "")
}
