package ledger

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"reflect"
	"time"
)

// Row is one row of a result. It is valid only inside the function that it is
// given to.
type Row struct{ vals []driver.Value }

// One is the first row of a result, or the error that took its place:
// sql.ErrNoRows where there was none.
type One struct {
	row Row
	err error
}

// Scan copies the columns as Row.Scan does.
func (o One) Scan(dest ...any) error {
	if o.err != nil {
		return o.err
	}
	return o.row.Scan(dest...)
}

// Scan copies the columns into dest: pointers to integers, strings (also named
// string types), byte slices, bool, time.Time (from Unix milliseconds, UTC;
// NULL becomes the zero time) or a sql.Scanner. NULL leaves the zero value in a
// string or byte slice and is an error for an integer.
func (r *Row) Scan(dest ...any) error {
	if len(dest) != len(r.vals) {
		return fmt.Errorf("scan row: %d destinations for %d columns", len(dest), len(r.vals))
	}
	for i, d := range dest {
		if err := scan(d, r.vals[i]); err != nil {
			return fmt.Errorf("scan column %d: %w", i+1, err)
		}
	}
	return nil
}

func scan(dest any, v driver.Value) error {
	switch d := dest.(type) {
	case *int64:
		n, ok := v.(int64)
		*d = n
		return mismatch(ok, v, "an integer")
	case *int:
		n, ok := v.(int64)
		*d = int(n)
		return mismatch(ok, v, "an integer")
	case *bool:
		n, ok := v.(int64)
		*d = n != 0
		return mismatch(ok, v, "an integer")
	case *string:
		return text(func(s string) { *d = s }, v)
	case *[]byte:
		return bytesOf(d, v)
	case *time.Time:
		return instant(d, v)
	case sql.Scanner:
		return d.Scan(v)
	}
	if e := reflect.ValueOf(dest).Elem(); e.Kind() == reflect.String {
		return text(e.SetString, v)
	}
	return fmt.Errorf("unsupported destination %T", dest)
}

func mismatch(ok bool, v driver.Value, want string) error {
	if ok {
		return nil
	}
	return fmt.Errorf("got %T, want %s", v, want)
}

func text(set func(string), v driver.Value) error {
	switch s := v.(type) {
	case string:
		set(s)
	case []byte:
		set(string(s))
	case nil:
		set("")
	default:
		return mismatch(false, v, "text")
	}
	return nil
}

func bytesOf(d *[]byte, v driver.Value) error {
	switch s := v.(type) {
	case string:
		*d = []byte(s)
	case []byte:
		*d = append([]byte(nil), s...)
	case nil:
		*d = nil
	default:
		return mismatch(false, v, "text or blob")
	}
	return nil
}

func instant(d *time.Time, v driver.Value) error {
	switch n := v.(type) {
	case int64:
		*d = time.UnixMilli(n).UTC()
	case nil:
		*d = time.Time{}
	default:
		return mismatch(false, v, "an instant")
	}
	return nil
}

// value turns an argument into what the driver stores: instants as Unix
// milliseconds, the zero time as NULL, named types as their kind.
func value(a any) (driver.Value, error) {
	switch v := a.(type) {
	case nil, int64, float64, string, []byte:
		return v, nil
	case int:
		return int64(v), nil
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case time.Time:
		if v.IsZero() {
			return nil, nil
		}
		return v.UnixMilli(), nil
	case time.Duration:
		return v.Milliseconds(), nil
	}
	return driver.DefaultParameterConverter.ConvertValue(a)
}
