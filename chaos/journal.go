package chaos

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Kind of a Record.
type Kind string

// The kinds.
const (
	Asked    Kind = "request"  // a request arrived, whatever became of it
	Effect   Kind = "effect"   // it took effect
	Question Kind = "question" // a status query arrived
)

// Record is one line of the journal: what the witness saw, in its order.
type Record struct {
	Kind      Kind   `json:"kind"`
	Tool      string `json:"tool"`
	Key       string `json:"key"`       // the wire key
	Operation string `json:"operation"` // status_ref
	Attempt   int    `json:"attempt"`
	Token     int64  `json:"token"`
	Body      string `json:"body"` // hex SHA-256 of the bytes
	At        int64  `json:"at"`   // Unix microseconds
}

// Time is when it was seen.
func (r Record) Time() time.Time { return time.UnixMicro(r.At) }

// journal appends records to a file and makes them durable, many with one fsync.
type journal struct {
	f *os.File

	mu      sync.Mutex // guards what follows
	written int64      // records in the file
	synced  int64      // records that an fsync covered
	syncing bool
	done    *sync.Cond // a sync ended
	err     error
}

func openJournal(path string) (*journal, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j := &journal{f: f}
	j.done = sync.NewCond(&j.mu)
	return j, nil
}

// add appends records in one write and returns when they are durable.
func (j *journal) add(records ...Record) error {
	var b bytes.Buffer
	for _, r := range records {
		if err := json.NewEncoder(&b).Encode(r); err != nil {
			return fmt.Errorf("encode record: %w", err)
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, err := j.f.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	j.written++
	return j.sync(j.written)
}

// sync waits until the first n writes are durable. One of those who wait syncs
// for all.
func (j *journal) sync(n int64) error {
	for j.synced < n && j.err == nil {
		if j.syncing {
			j.done.Wait()
			continue
		}
		j.syncing = true
		upTo := j.written
		j.mu.Unlock()
		err := j.f.Sync()
		j.mu.Lock()
		j.syncing = false
		if j.synced = upTo; err != nil {
			j.err = fmt.Errorf("sync journal: %w", err)
		}
		j.done.Broadcast()
	}
	return j.err
}

// ReadJournal reads what a witness has written so far. It may be at work: a last
// line that is not whole is left out.
func ReadJournal(path string) ([]Record, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read journal: %w", err)
	}
	text = text[:bytes.LastIndexByte(text, '\n')+1]
	var list []Record
	for line := range bytes.Lines(text) {
		var r Record
		if err := json.Unmarshal(line, &r); err != nil {
			return nil, fmt.Errorf("read journal: %w", err)
		}
		list = append(list, r)
	}
	return list, nil
}
