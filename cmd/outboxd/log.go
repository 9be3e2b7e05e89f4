package main

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/outboxd/outboxd/config"
)

// logger writes to stderr: JSON, or for people where format says so, or where it
// says auto and stderr is a terminal.
func (a *app) logger(c config.Log) (*zap.Logger, error) {
	level, err := zapcore.ParseLevel(c.Level)
	if err != nil {
		return nil, fmt.Errorf("read log level: %w", err)
	}
	e := zap.NewProductionEncoderConfig()
	e.TimeKey, e.EncodeTime = "time", zapcore.RFC3339NanoTimeEncoder
	e.EncodeDuration = zapcore.StringDurationEncoder
	var encoder zapcore.Encoder
	if c.Format == "console" || (c.Format == "auto" && isTerminal(a.stderr)) {
		e.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
		encoder = zapcore.NewConsoleEncoder(e)
	} else {
		encoder = zapcore.NewJSONEncoder(e)
	}
	lines := &lines{out: zapcore.Lock(zapcore.AddSync(a.stderr)), encoder: encoder, LevelEnabler: level, silenced: &a.silenced}
	if a.journal() {
		lines.prefix = func(l zapcore.Level) string { return fmt.Sprintf("<%d>", priority(l)) } // sd-daemon(3)
	}
	return zap.New(zapcore.NewSamplerWithOptions(lines, time.Second, linesFirst, linesThen, zapcore.SamplerHook(lines.sampled))), nil
}

// What is written of one message in one second: the first lines, and one of so
// many after them. A loop that complains must not fill the disk, nor have the
// journal drop what others say.
const (
	linesFirst = 100
	linesThen  = 100
)

// journal reports whether stderr is the journal's, as systemd tells by device
// and inode (systemd.exec(5), JOURNAL_STREAM).
func (a *app) journal() bool {
	f, ok := io.Writer(a.stderr).(*os.File)
	if !ok {
		return false
	}
	st, err := f.Stat()
	if err != nil {
		return false
	}
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && a.variable("JOURNAL_STREAM") == fmt.Sprintf("%d:%d", sys.Dev, sys.Ino)
}

func priority(l zapcore.Level) int {
	switch {
	case l >= zapcore.ErrorLevel:
		return 3
	case l == zapcore.WarnLevel:
		return 4
	case l == zapcore.InfoLevel:
		return 6
	}
	return 7
}
