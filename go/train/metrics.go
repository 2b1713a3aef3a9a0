package train

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/nncuda/nncuda/go/formats"
)

// ReadMetrics gives the records of a metrics file; a last line that a kill cut off is left out.
func ReadMetrics(path string) ([]*formats.Object, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, formats.CannotRead(path, err)
	}
	var records []*formats.Object
	for line := range strings.Lines(string(data)) {
		value, err := formats.ParseJSON([]byte(line))
		if err != nil {
			break
		}
		if record, ok := value.(*formats.Object); ok {
			records = append(records, record)
		}
	}
	return records, nil
}

// metricsLog appends records to metrics.jsonl in a run folder.
type metricsLog struct{ file *os.File }

// openMetrics drops what an earlier process wrote beyond `step`, where this one takes over: those steps will come
// again.
func openMetrics(folder string, step int) (*metricsLog, error) {
	path := filepath.Join(folder, "metrics.jsonl")
	records, err := ReadMetrics(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if err == nil {
		var kept strings.Builder
		for _, record := range records {
			if at, ok := record.Get("step").(int64); !ok || at <= int64(step) {
				kept.WriteString(formats.JSONLine(record) + "\n")
			}
		}
		if err := formats.WriteFile(path, []byte(kept.String())); err != nil {
			return nil, err
		}
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return nil, err
	}
	return &metricsLog{file}, nil
}

// write appends one record, which has a "step".
func (m *metricsLog) write(record *formats.Object) error {
	_, err := m.file.WriteString(formats.JSONLine(record) + "\n")
	return err
}

func (m *metricsLog) close() error { return m.file.Close() }
