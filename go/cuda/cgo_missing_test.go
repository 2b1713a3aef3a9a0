//go:build cgo

package cuda

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Without cgo the compiler's only complaint says that it is needed.
func TestWithoutCgoTheBuildSaysSo(t *testing.T) {
	build := exec.Command("go", "build", "../...")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	if err == nil {
		t.Fatal("it was built")
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(lines) != 2 || !strings.Contains(lines[1], "needs_cgo_so_install_a_C_compiler_and_build_with_CGO_ENABLED_1") {
		t.Errorf("%s", out)
	}
}
