package fetch

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// DiskFree asks the kernel for the bytes that an ordinary user may still
// write where path is.
func DiskFree(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("measure free space at %s: %w", path, err)
	}
	return int64(st.Bavail) * int64(st.Bsize), nil
}
