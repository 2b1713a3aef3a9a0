package serve

import (
	"testing"

	"github.com/nncuda/nncuda/go/internal/withlibrary"
)

func TestMain(m *testing.M) { withlibrary.Main(m) }
