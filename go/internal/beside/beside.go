// Package beside knows where a program looks first for libraries that it opens when it runs.
package beside

import (
	"os"
	"path/filepath"
)

// Program is the file that runs; "" when the system does not tell.
func Program() string {
	path, err := os.Executable()
	if err != nil {
		return ""
	}
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	return path
}

// Places are those of a file beside a program: in its folder, or in ../lib from there; none for the program "".
func Places(program, file string) []string {
	if program == "" {
		return nil
	}
	folder := filepath.Dir(program)
	return []string{filepath.Join(folder, file), filepath.Join(filepath.Dir(folder), "lib", file)}
}
