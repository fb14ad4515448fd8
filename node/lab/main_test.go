package lab

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	os.Exit(Main(m, map[string]func() int{
		"crash": crashingLab,
		"proxy": plainProxy,
	}))
}
