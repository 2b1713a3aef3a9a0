package formats

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"syscall"
)

// Present says whether a folder has an entry of this name. A link that leads nowhere, or in a circle, is one: to read it
// is then an error, where passing over it would give another model or run than the folder was meant to hold.
func Present(path string) bool {
	_, err := os.Lstat(path)
	return err == nil || !errors.Is(err, fs.ErrNotExist)
}

// Resolve makes a path absolute and follows its links.
func Resolve(path string) (string, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(absolute)
}

// OpenRegular opens a file for reading and gives its size. What is no regular file is an *Error: a pipe or a device in a
// folder from elsewhere must not stop a reader.
func OpenRegular(path string) (*os.File, int64, error) {
	// A pipe is opened at once, and not when somebody writes to it.
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, 0, CannotRead(path, err)
	}
	info, err := file.Stat()
	if err == nil && info.Mode().IsRegular() {
		return file, info.Size(), nil
	}
	_ = file.Close()
	if err != nil {
		return nil, 0, CannotRead(path, err)
	}
	return nil, 0, &Error{Path: path, Problem: "cannot be read: it is not a regular file"}
}

// ReadRegular gives all bytes of a regular file that has at most `most` of them.
func ReadRegular(path string, most int64) ([]byte, error) {
	file, size, err := OpenRegular(path)
	if err != nil {
		return nil, err
	}
	defer file.Close() // read only: nothing can be lost
	if size > most {
		return nil, &Error{Path: path, Problem: fmt.Sprintf(
			"has %d bytes; a file of its kind may have at most %d", size, most,
		)}
	}
	content := make([]byte, size+1)
	count, err := io.ReadFull(file, content)
	switch {
	case err == nil: // it may be one without end, whose size the system does not know
		problem := fmt.Sprintf("has more than the %d bytes that the system gives as its size", size)
		return nil, &Error{Path: path, Problem: problem}
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return content[:count], nil
	}
	return nil, CannotRead(path, err)
}

// Line is a line of a JSONL file.
type Line struct {
	Text   []byte  // with its end
	Record *Object // nil where the line holds no object, or one that breaks the rules of ParseJSON
}

// JSONLines reads a JSONL file line by line; Text is overwritten by the next one. The error is the last thing to come: of
// a file that cannot be read, or that has a line longer than any record.
func JSONLines(path string) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		file, _, err := OpenRegular(path)
		if err != nil {
			yield(Line{}, err)
			return
		}
		defer file.Close() // read only: nothing can be lost
		reader := bufio.NewReaderSize(file, 1<<16)
		for number := 1; ; number++ {
			text, err := readLine(reader)
			switch {
			case errors.Is(err, io.EOF):
				return
			case errors.Is(err, bufio.ErrTooLong):
				problem := fmt.Sprintf("line %d has more than %d bytes", number, LineBytes)
				yield(Line{}, &Error{Path: path, Problem: problem})
				return
			case err != nil:
				yield(Line{}, CannotRead(path, err))
				return
			}
			line := Line{Text: text}
			if value, err := ParseJSON(text); err == nil {
				line.Record, _ = value.(*Object)
			}
			if !yield(line, nil) {
				return
			}
		}
	}
}

// readLine gives the next line with its end, which the last one may lack; io.EOF after it.
func readLine(reader *bufio.Reader) ([]byte, error) {
	var line []byte
	for {
		part, err := reader.ReadSlice('\n')
		if line == nil && err == nil {
			return part, nil
		}
		line = append(line, part...)
		switch {
		case len(line) > LineBytes:
			return nil, bufio.ErrTooLong
		case err == nil, errors.Is(err, io.EOF) && len(line) > 0:
			return line, nil
		case !errors.Is(err, bufio.ErrBufferFull):
			return nil, err
		}
	}
}
