package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
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
	if a.journal() {
		encoder = prioritised{encoder}
	}
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(a.stderr)), level)
	return zap.New(bounded{core}), nil
}

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

// prioritised puts the priority in front of each line (sd-daemon(3)).
type prioritised struct{ zapcore.Encoder }

func (p prioritised) Clone() zapcore.Encoder { return prioritised{p.Encoder.Clone()} }

func (p prioritised) EncodeEntry(e zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	line, err := p.Encoder.EncodeEntry(e, fields)
	if err != nil {
		return nil, err
	}
	defer line.Free()
	out := buffer.NewPool().Get()
	out.AppendString(fmt.Sprintf("<%d>", priority(e.Level)))
	_, err = out.Write(line.Bytes())
	return out, err
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

// longestValue bounds each value of a log line, in bytes: the journal cuts long
// lines into pieces.
const longestValue = 2048

// bounded caps what is logged.
type bounded struct{ zapcore.Core }

func (b bounded) With(fields []zapcore.Field) zapcore.Core {
	return bounded{b.Core.With(cut(fields))}
}

func (b bounded) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if b.Enabled(e.Level) {
		return c.AddCore(e, b)
	}
	return c
}

func (b bounded) Write(e zapcore.Entry, fields []zapcore.Field) error {
	return b.Core.Write(e, cut(fields))
}

func cut(fields []zapcore.Field) []zapcore.Field {
	short := make([]zapcore.Field, len(fields))
	for i, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			f = zap.String(f.Key, err.Error())
		}
		if f.Type == zapcore.StringType && len(f.String) > longestValue {
			f.String = strings.ToValidUTF8(f.String[:longestValue], "") + "..."
		}
		short[i] = f
	}
	return short
}
