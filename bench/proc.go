package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// ownCPU is the CPU time of this process in seconds.
func ownCPU() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // refused only for a wrong argument
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// usage is what a process has used so far.
type usage struct {
	cpu     float64 // seconds
	written float64 // bytes that went to storage
	rss     float64 // MB
}

func usageOf(pid int) (usage, error) {
	cpu, err1 := processTime(pid)
	written, err2 := field(fmt.Sprintf("/proc/%d/io", pid), "write_bytes:")
	rss, err3 := field(fmt.Sprintf("/proc/%d/status", pid), "VmRSS:")
	return usage{cpu, written, rss * 1024 / 1e6}, errors.Join(err1, err2, err3)
}

// processTime reads the CPU clock of another process, in seconds:
// /proc/PID/stat counts in hundredths, which is too coarse for an idle one. The
// number of the clock is the one of clock_getcpuclockid(3).
func processTime(pid int) (float64, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &t); err != nil {
		return 0, fmt.Errorf("read CPU clock of process %d: %w", pid, err)
	}
	return float64(t.Nano()) / 1e9, nil
}

func field(file, key string) (float64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == key {
			return strconv.ParseFloat(words[1], 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, key)
}

// probe says how fast the disk is just now: the median of 100 overwrites of
// 4 KiB, each synced, in microseconds.
func probe(dir string) (float64, error) {
	name := filepath.Join(dir, "probe")
	f, err := os.Create(name)
	if err != nil {
		return 0, err
	}
	defer os.Remove(name)
	defer f.Close()
	if _, err := f.Write(make([]byte, 16*4096)); err != nil {
		return 0, err
	}
	var took []float64
	for i := range int64(100) {
		start := time.Now()
		if _, err := f.WriteAt(make([]byte, 4096), i%16*4096); err != nil {
			return 0, err
		}
		if err := f.Sync(); err != nil {
			return 0, err
		}
		took = append(took, float64(time.Since(start).Microseconds()))
	}
	slices.Sort(took)
	return quantile(took, .5), nil
}
