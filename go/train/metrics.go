package train

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"

	"github.com/nncuda/nncuda/go/formats"
)

// dropRecords takes the records after `step` out of a file of them, and what stands after a line that a kill cut off;
// the other lines stay as they are. Nothing happens when there is no file.
func dropRecords(path string, step int) error {
	if !formats.Present(path) {
		return nil
	}
	return formats.WriteFileWith(path, func(file *os.File) error {
		kept := bufio.NewWriter(file)
		for line, err := range formats.JSONLines(path) {
			if err != nil {
				return err
			}
			if line.Record == nil {
				break
			}
			if !isBehind(line.Record.Get("step"), step) {
				kept.Write(bytes.TrimRight(line.Text, "\r\n")) // Flush tells of a failure
				kept.WriteByte('\n')
			}
		}
		return kept.Flush()
	})
}

// isBehind says whether the step of a record is a number above `step`.
func isBehind(value any, step int) bool {
	switch value := value.(type) {
	case int64:
		return value > int64(step)
	case float64:
		return !(value <= float64(step))
	}
	return false
}

// metricsLog appends records to metrics.jsonl in a run folder.
type metricsLog struct{ file *os.File }

// openMetrics drops what an earlier process wrote beyond `step`, where this one takes over: those steps will come
// again.
func openMetrics(folder string, step int) (*metricsLog, error) {
	path := filepath.Join(folder, "metrics.jsonl")
	if err := dropRecords(path, step); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return nil, err
	}
	return &metricsLog{file}, nil
}

// write appends one record, which has a "step".
func (m *metricsLog) write(record *formats.Object) error {
	line, err := formats.JSONLine(record)
	if err == nil {
		_, err = m.file.Write(line)
	}
	return err
}

func (m *metricsLog) close() error { return m.file.Close() }
