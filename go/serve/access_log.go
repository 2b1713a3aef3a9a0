package serve

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
	"unicode"
)

// LogFormats are those of Options.LogFormat.
var LogFormats = []string{"text", "json"}

// accessLog writes what happened, one line a record, as text for people or as JSON for programs.
type accessLog struct {
	json bool
	mu   sync.Mutex
	to   io.Writer
}

// record writes a line with these values; those that are nil are left out.
func (l *accessLog) record(values object) {
	stamp := time.Now().UTC().Format("2006-01-02T15:04:05.000Z")
	known := object{{"time", stamp}}
	for _, one := range values {
		if one.value != nil {
			known = append(known, one)
		}
	}
	var line []byte
	if l.json {
		line = append(jsonOf(known), '\n')
	} else {
		parts := []string{stamp}
		for _, one := range known[1:] {
			parts = append(parts, one.key+"="+logWord(one.value))
		}
		line = []byte(strings.Join(parts, " ") + "\n")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, _ = l.to.Write(line) // a log that cannot be written is no reason to refuse a request
}

// message writes a line of the server's own.
func (l *accessLog) message(level, text string) {
	l.record(object{{"level", level}, {"message", text}})
}

// Write takes lines of package log, which net/http writes.
func (l *accessLog) Write(line []byte) (int, error) {
	l.message("warning", strings.TrimSpace(string(line)))
	return len(line), nil
}

// logWord is a value without spaces around it that could be taken for the next; line ends and quotes of strangers escaped.
func logWord(value any) string {
	text, ok := value.(string)
	if !ok {
		if number, isFloat := value.(float32); isFloat {
			return string(jsonOf(number))
		}
		return fmt.Sprint(value)
	}
	plain := text != ""
	for _, sign := range text {
		plain = plain && sign < 0x7F && unicode.IsPrint(sign) && !strings.ContainsRune(` "\=`, sign)
	}
	if plain {
		return text
	}
	return string(jsonOf(text))
}

// seconds is a time as the log has it: nil for none.
func seconds(spent time.Duration) any { return float32(spent.Round(time.Microsecond).Seconds()) }
