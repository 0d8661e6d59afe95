//go:build unix

package sealedsessions

import (
	"io/fs"
	"syscall"
)

// numberOf is the number of the file in its file system.
func numberOf(info fs.FileInfo) uint64 {
	if status, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(status.Ino)
	}
	return 0
}

// isShared reports whether others than the owner may use the file.
func isShared(info fs.FileInfo) bool {
	return info.Mode().Perm()&0o077 != 0
}
