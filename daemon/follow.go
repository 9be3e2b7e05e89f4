package daemon

import (
	"bytes"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/config"
)

// look is the config file at rest; sure is the answer to it.
type look struct {
	file config.Rested
	sure chan bool
}

// follow has the config reloaded when its file was changed.
func (d *daemon) follow(ctx context.Context) error {
	if d.o.File == "" || d.o.Load == nil {
		return nil
	}
	o := d.o.Watch
	o.Late = func(err error) {
		d.log.Warn("a change of the config is noticed with delay", zap.Error(err))
	}
	return config.Watch(ctx, d.o.File, o, func(ctx context.Context, file config.Rested) bool {
		l := look{file, make(chan bool, 1)}
		select {
		case d.looks <- l:
			return <-l.sure // bounded by reloadTime
		case <-d.halted:
		case <-ctx.Done():
		}
		return true
	})
}

// changed takes the file's config, if it is another one and whole. Somebody may be
// in the middle of writing it: what looks like that, or is wrong, is looked at again
// after a longer rest, and only then told.
func (d *daemon) changed(ctx context.Context, file config.Rested) (sure bool) {
	text := d.fileText()
	cfg, err := d.o.Load()
	if !file.Still() {
		return true // it is looked at anew when it rests again
	}
	same := err == nil && reflect.DeepEqual(cfg, d.present)
	switch {
	case same && d.complaint == "":
		d.text = text
		return true
	case !file.Last && (err != nil || !same && d.hasty(text)):
		return false
	case err == nil:
		err = d.halfWritten(cfg, text)
	}
	if err != nil && err.Error() == d.complaint {
		return true // told already
	}
	if d.conclude(ctx, cfg, err).err == nil {
		d.text = text
	}
	return true
}

// fileText is for comparing only: what is wrong with the file is told by Load.
func (d *daemon) fileText() []byte {
	if d.o.File == "" {
		return nil
	}
	text, err := config.Read(d.o.File)
	if err != nil {
		return nil
	}
	return text
}

// hasty: the file may be one that is still being written.
func (d *daemon) hasty(text []byte) bool {
	return !ended(text) || bytes.HasPrefix(d.text, text) || len(text) < len(d.text)*9/10
}

func ended(text []byte) bool { return bytes.HasSuffix(text, []byte("\n")) }

// halfWritten refuses what reads well and yet looks as if the rest of the file were
// missing. Whoever means it asks for the reload.
func (d *daemon) halfWritten(cfg *config.Config, text []byte) error {
	allowed := "a whole file; if it is one, outboxd config reload or SIGHUP takes it as it is"
	var list []config.Problem
	refuse := func(path, found string) {
		list = append(list, config.Problem{File: d.o.File, Path: path, Found: found, Allowed: allowed})
	}
	if !ended(text) && ended(d.text) {
		refuse("", "a last line that does not end, unlike before")
	}
	toolName := func(t config.Tool) string { return t.Name }
	if lost := missing(d.present.Tools, cfg.Tools, toolName); lost != "" {
		refuse("tools", "a file without the tool "+lost)
	}
	principalName := func(p config.Principal) string { return p.Name }
	if lost := missing(d.present.Principals, cfg.Principals, principalName); lost != "" {
		refuse("principals", "a file without the principal "+lost)
	}
	if len(list) == 0 {
		return nil
	}
	return &config.Problems{List: list}
}

// missing names what was there and is no more; "" if nothing is.
func missing[T any](was, is []T, name func(T) string) string {
	var lost []string
	for _, one := range was {
		if !slices.ContainsFunc(is, func(other T) bool { return name(other) == name(one) }) {
			lost = append(lost, fmt.Sprintf("%.60q", name(one)))
		}
	}
	if more := len(lost) - 3; more > 0 {
		lost = append(lost[:3], fmt.Sprintf("%d more", more))
	}
	return strings.Join(lost, ", ")
}
