//go:build !cgo

package cuda

// Without cgo this package is nothing. The compiler reports the name below, and so says what is missing: go build leaves
// cgo out when CGO_ENABLED is 0, when no C compiler is found, and when it builds for another system.
var _ = this_package_needs_cgo_so_install_a_C_compiler_and_build_with_CGO_ENABLED_1
