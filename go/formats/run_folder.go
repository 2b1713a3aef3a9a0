package formats

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
)

// A run keeps its checkpoints as RUN/checkpoints/step-NNNNNNNN; the last one has the highest number.
var stepFolder = regexp.MustCompile(`^step-(\d{8,})$`)

// ListCheckpoints gives the checkpoint folders of a run, oldest first; none when `root` does not exist.
func ListCheckpoints(root string) []string {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil
	}
	type numbered struct {
		step   int
		folder string
	}
	var found []numbered
	for _, entry := range entries {
		match := stepFolder.FindStringSubmatch(entry.Name())
		folder := filepath.Join(root, entry.Name())
		if info, err := os.Stat(folder); match == nil || err != nil || !info.IsDir() {
			continue
		}
		if step, err := strconv.Atoi(match[1]); err == nil {
			found = append(found, numbered{step, folder})
		}
	}
	slices.SortStableFunc(found, func(a, b numbered) int { return a.step - b.step })
	folders := make([]string, len(found))
	for at, entry := range found {
		folders[at] = entry.folder
	}
	return folders
}

// AdapterConfig is the file by which a folder is that of an adapter, as PEFT writes it.
const AdapterConfig = "adapter_config.json"

// CheckNoAdapter refuses the folder of an adapter, in place of a model's.
func CheckNoAdapter(folder string) error {
	if Present(filepath.Join(folder, AdapterConfig)) && !Present(filepath.Join(folder, "config.json")) {
		problem := "holds an adapter alone; give the model that it is of, and this as its adapter"
		return &Error{Path: folder, Problem: problem}
	}
	return nil
}

// LastCheckpoint gives the last checkpoint of a run; the path itself when it is not a run. An error for a run without any.
func LastCheckpoint(path string) (string, error) {
	root := filepath.Join(path, "checkpoints")
	if info, err := os.Stat(root); err != nil || !info.IsDir() {
		return path, nil
	}
	folders := ListCheckpoints(root)
	if len(folders) == 0 {
		return "", Missing(root, "holds no checkpoint yet")
	}
	return folders[len(folders)-1], nil
}
