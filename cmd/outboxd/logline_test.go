package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/outboxd/outboxd/config"
)

// logged are the lines that a function logs, under the journal or not.
func logged(t *testing.T, journal bool, do func(*zap.Logger)) (list []string, silenced uint64) {
	t.Helper()
	f, err := os.CreateTemp(t.TempDir(), "log")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	a := &app{stderr: f}
	if journal {
		var st unix.Stat_t
		if err := unix.Fstat(int(f.Fd()), &st); err != nil {
			t.Fatal(err)
		}
		a.env = []string{fmt.Sprintf("JOURNAL_STREAM=%d:%d", st.Dev, st.Ino)}
	}
	log, err := a.logger(config.Log{Level: "info", Format: "json"})
	if err != nil {
		t.Fatal(err)
	}
	do(log)
	b, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n"), a.silenced.all.Load()
}

// shout is a value that is of no use to the encoder but to be written out.
type shout struct{ Words []string }

func (s shout) String() string { return strings.Join(s.Words, " ") }

func TestALineIsNeverTooLongAndAlwaysJSON(t *testing.T) {
	long := strings.Repeat("x", 60<<10)
	many := make([]zap.Field, 600)
	for i := range many {
		many[i] = zap.String(fmt.Sprintf("field_%d", i), strings.Repeat("é", 100))
	}
	for name, do := range map[string]func(*zap.Logger){
		"an error with an excerpt": func(l *zap.Logger) { l.Error("m", zap.String("tool", "mail"), zap.Error(errors.New(long))) },
		"a key of control bytes": func(l *zap.Logger) {
			l.Warn("m", zap.String("tool", "mail"), zap.String("key", strings.Repeat("\x01", 64<<10)))
		},
		"broken UTF-8": func(l *zap.Logger) {
			l.Warn("m", zap.String("tool", "mail"), zap.String("key", strings.Repeat("\xff\xfe", 9<<10)))
		},
		"many long values":          func(l *zap.Logger) { l.Info("m", append(many[:40:40], zap.String("tool", "mail"))...) },
		"more fields than there is": func(l *zap.Logger) { l.Info("m", many...) },
		"fields of before": func(l *zap.Logger) {
			l.With(zap.String("a", long)).With(zap.String("b", long)).Info("m", zap.String("tool", "mail"))
		},
		"a message":       func(l *zap.Logger) { l.Info(long, zap.String("tool", "mail")) },
		"a panic's value": func(l *zap.Logger) { l.Error("m", zap.String("tool", "mail"), zap.Any("panic", shout{[]string{long}})) },
		"a list": func(l *zap.Logger) {
			l.Info("m", zap.String("tool", "mail"), zap.Strings("sections", []string{long, long}))
		},
		"bytes": func(l *zap.Logger) {
			l.Info("m", zap.String("tool", "mail"), zap.ByteString("raw", []byte(long)), zap.Binary("b", []byte(long)))
		},
		"something reflected": func(l *zap.Logger) {
			l.Info("m", zap.String("tool", "mail"), zap.Reflect("v", map[string]string{"k": long}))
		},
	} {
		for _, journal := range []bool{false, true} {
			lines, _ := logged(t, journal, do)
			if len(lines) != 1 || len(lines[0])+1 >= 8<<10 {
				t.Errorf("%s: %d lines, the first of %d bytes, want one of less than 8 KiB", name, len(lines), len(lines[0]))
				continue
			}
			text := lines[0]
			if journal {
				text = text[strings.Index(text, ">")+1:]
			}
			var line map[string]any
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Errorf("%s: %v: %.100s", name, err, text)
				continue
			}
			whole := line["tool"] == "mail" || line["fields_left_out"] != nil
			if line["cut"] != true || !whole || line["level"] == nil || line["time"] == nil {
				t.Errorf("%s: it does not say that it is cut, or lost more than it had to: %.300s", name, text)
			}
		}
	}
}

func TestAShortLineIsWhole(t *testing.T) {
	lines, _ := logged(t, false, func(l *zap.Logger) {
		l.With(zap.String("tool", "mail")).Info("m", zap.Int("attempt", 3), zap.Error(errors.New("timeout")), zap.Strings("sections", []string{"log"}))
	})
	var got map[string]any
	if err := json.Unmarshal([]byte(lines[0]), &got); err != nil {
		t.Fatal(err)
	}
	delete(got, "time")
	if text := fmt.Sprint(got); text != "map[attempt:3 error:timeout level:info msg:m sections:[log] tool:mail]" {
		t.Errorf("got %s", text)
	}
}

func TestAMessageThatFloodsIsThinnedAndCounted(t *testing.T) {
	const n = 20_000
	lines, silenced := logged(t, false, func(l *zap.Logger) {
		for i := range n {
			l.Warn("looking for due work failed", zap.Int("i", i))
		}
		l.Warn("something else")
	})
	if len(lines) > n/10 || len(lines) < linesFirst {
		t.Errorf("%d of %d lines were written", len(lines), n)
	}
	if silenced != uint64(n+1-len(lines)) {
		t.Errorf("%d lines are counted as left out, want %d", silenced, n+1-len(lines))
	}
	told := 0
	for _, text := range lines {
		var line struct {
			LeftOut int `json:"lines_left_out"`
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatal(err)
		}
		told += line.LeftOut
	}
	if told != int(silenced) || !strings.Contains(lines[len(lines)-1], "something else") {
		t.Errorf("the log tells of %d lines that were left out, want %d; it ends with %s", told, silenced, lines[len(lines)-1])
	}
}
