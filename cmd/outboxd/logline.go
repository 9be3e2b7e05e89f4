package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/buffer"
	"go.uber.org/zap/zapcore"
)

// longestLine bounds a line of the log with all that belongs to it, in bytes: the
// journal cuts longer ones into pieces, of which none is JSON.
const longestLine = 8<<10 - 1

// caps are how long the values of one line may be, in bytes: the first under which
// the line is short enough. Escaped, a byte may take six.
var caps = [...]int{4 << 10, 2 << 10, 512, 128, 16}

// lines is a zapcore.Core that writes no line that is too long. It keeps the fields
// of With itself, since all of a line counts.
type lines struct {
	zapcore.LevelEnabler
	out      zapcore.WriteSyncer
	encoder  zapcore.Encoder
	prefix   func(zapcore.Level) string // nil: none
	fields   []zapcore.Field
	silenced *silenced
}

// silenced counts lines that were left out because there were too many.
type silenced struct {
	all    atomic.Uint64
	untold atomic.Uint64 // since the last line that was written
}

func (l *lines) sampled(_ zapcore.Entry, d zapcore.SamplingDecision) {
	if d&zapcore.LogDropped != 0 {
		l.silenced.all.Add(1)
		l.silenced.untold.Add(1)
	}
}

// With implements zapcore.Core.
func (l *lines) With(fields []zapcore.Field) zapcore.Core {
	more := *l
	more.fields = slices.Concat(l.fields, fields)
	return &more
}

// Check implements zapcore.Core.
func (l *lines) Check(e zapcore.Entry, c *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if l.Enabled(e.Level) {
		return c.AddCore(e, l)
	}
	return c
}

// Write implements zapcore.Core.
func (l *lines) Write(e zapcore.Entry, fields []zapcore.Field) error {
	fields = slices.Concat(l.fields, fields)
	if n := l.silenced.untold.Swap(0); n > 0 {
		fields = append(fields, zap.Uint64("lines_left_out", n))
	}
	line, err := l.line(e, fields)
	if err != nil {
		return fmt.Errorf("encode a line: %w", err)
	}
	defer line.Free()
	_, err = l.out.Write(line.Bytes())
	return err
}

// Sync implements zapcore.Core.
func (l *lines) Sync() error { return l.out.Sync() }

// line is the entry, with its values cut as far as it takes. What is cut ends with
// dots, and the line says so.
func (l *lines) line(e zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	for _, most := range caps {
		line, err := l.encode(cut(e, fields, most))
		if err != nil || line.Len() <= longestLine {
			return line, err
		}
		line.Free()
	}
	e.Message, _ = short(e.Message, caps[len(caps)-1])
	e.Stack = ""
	return l.encode(e, []zapcore.Field{zap.Int("fields_left_out", len(fields)), zap.Bool("cut", true)})
}

func (l *lines) encode(e zapcore.Entry, fields []zapcore.Field) (*buffer.Buffer, error) {
	line, err := l.encoder.EncodeEntry(e, fields)
	if err != nil || l.prefix == nil {
		return line, err
	}
	defer line.Free()
	out := buffers.Get()
	out.AppendString(l.prefix(e.Level))
	_, err = out.Write(line.Bytes())
	return out, err
}

var buffers = buffer.NewPool()

// cut is the entry with no value longer than most.
func cut(e zapcore.Entry, fields []zapcore.Field, most int) (zapcore.Entry, []zapcore.Field) {
	var message, stack bool
	e.Message, message = short(e.Message, most)
	e.Stack, stack = short(e.Stack, most)
	any := message || stack
	all := make([]zapcore.Field, len(fields), len(fields)+1)
	for i, f := range fields {
		text, long := short(valueOf(f), most)
		if long {
			f = zap.String(f.Key, text)
		} else if f.Type == zapcore.ErrorType {
			f = zap.String(f.Key, text) // without what else an error may have to say
		}
		all[i], any = f, any || long
	}
	if any {
		all = append(all, zap.Bool("cut", true))
	}
	return e, all
}

// valueOf is the value of a field that may be of any length; "" of one that may not.
func valueOf(f zapcore.Field) string {
	switch f.Type {
	case zapcore.StringType:
		return f.String
	case zapcore.ErrorType, zapcore.ByteStringType, zapcore.StringerType, zapcore.BinaryType, zapcore.ReflectType,
		zapcore.ArrayMarshalerType, zapcore.ObjectMarshalerType, zapcore.InlineMarshalerType:
	default:
		return ""
	}
	m := zapcore.NewMapObjectEncoder()
	f.AddTo(m)
	if text, ok := m.Fields[f.Key].(string); ok {
		return text
	}
	b, err := json.Marshal(m.Fields)
	if err != nil {
		return fmt.Sprint(m.Fields)
	}
	return string(b)
}

// short is a text of at most that many bytes, and whether it was longer.
func short(text string, most int) (string, bool) {
	if len(text) <= most {
		return text, false
	}
	return strings.ToValidUTF8(text[:most], "") + "...", true
}
