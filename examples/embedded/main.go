// Command embedded is an application that has outboxd inside: its orders and the
// outbox are in one SQLite file, a customer is mailed for each order, and the
// mail is a Go function of this program.
//
//	go run ./examples/embedded [DIRECTORY]
//
// The rule of embedding: all that this process does with the file goes through
// the driver that outboxd uses, modernc.org/sqlite. Another SQLite in the same
// process, or os.Open on the file, its -wal or its -shm, would drop locks that
// SQLite relies on, and commits would be lost. Other processes may use any
// SQLite from 3.37 on.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"go.uber.org/zap"
	_ "modernc.org/sqlite" // the driver named sqlite, and the only one for this file

	"github.com/outboxd/outboxd/api"
	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/daemon"
)

func main() {
	if err := inDirectory(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// inDirectory runs in the directory that is named, else in a temporary one.
func inDirectory(args []string) (err error) {
	if len(args) > 0 {
		return run(context.Background(), args[0], os.Stdout)
	}
	dir, err := os.MkdirTemp("", "embedded-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	return run(context.Background(), dir, os.Stdout)
}

// run is the whole program: open the database, have the daemon work beside us,
// place an order, and wait until its mail is delivered.
func run(ctx context.Context, dir string, out io.Writer) (err error) {
	db, err := openShop(ctx, filepath.Join(dir, "shop.db"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()

	// What a config file would say, for a program that has none. config.Load
	// reads one.
	cfg := config.Default()
	cfg.Database.Path = filepath.Join(dir, "shop.db")
	cfg.Listen.Socket = filepath.Join(dir, "outboxd.sock")
	cfg.Operators.UIDs = []int{os.Getuid()}

	server := &mailServer{out: out, sent: map[string]int{}}
	return beside(ctx, &cfg, daemon.Options{Tools: []daemon.Tool{server.tool()}}, func(ctx context.Context) error {
		if err := placeOrder(ctx, db, 17, "ann@shop.example"); err != nil {
			return err
		}
		return report(ctx, cfg.Listen.Socket, "order-17", out)
	})
}

// beside runs the daemon, and body as soon as the daemon is ready. It returns
// when both have ended: body first, then the daemon, which drains.
func beside(ctx context.Context, cfg *config.Config, o daemon.Options, body func(context.Context) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ready, ended := make(chan struct{}), make(chan error, 1)
	o.Started = func() { close(ready) }
	go func() { ended <- daemon.Run(ctx, cfg, o, zap.NewNop()) }()
	select {
	case err := <-ended:
		return fmt.Errorf("run the daemon: %w", err)
	case <-ready:
	}
	err := body(ctx)
	stop()
	return errors.Join(err, <-ended)
}

// openShop opens the application's own file. In write-ahead mode, which the
// outbox needs: outboxd sets it only on a file that it created itself.
func openShop(ctx context.Context, path string) (*sql.DB, error) {
	dsn := url.URL{Scheme: "file", Opaque: url.PathEscape(path),
		RawQuery: "_pragma=journal_mode(wal)&_pragma=busy_timeout(5000)&_txlock=immediate"}
	db, err := sql.Open("sqlite", dsn.String())
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS shop_order (
		number INTEGER PRIMARY KEY, mail TEXT NOT NULL) STRICT`)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create table: %w", err), db.Close())
	}
	return db, nil
}

// placeOrder records the order and the intent to mail, or neither. Nothing is
// sent here: the request leaves some milliseconds after the commit. Called again
// with the same order it changes nothing, and no second mail is sent.
func placeOrder(ctx context.Context, db *sql.DB, number int, mail string) (err error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it does nothing
	_, err = tx.ExecContext(ctx, `INSERT INTO shop_order (number, mail) VALUES (?, ?) ON CONFLICT DO NOTHING`, number, mail)
	if err != nil {
		return fmt.Errorf("insert order: %w", err)
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO outbox_intake (tenant_id, subject_id, tool_name, idempotency_key, arguments)
		VALUES ('shop', 'orders', 'mail', 'order-' || ?1, json_object('order', ?1, 'to', ?2))`, number, mail)
	if err != nil {
		return fmt.Errorf("insert intent: %w", err)
	}
	return tx.Commit()
}

// report waits until the operation has come to its end and says to which.
func report(ctx context.Context, socket, key string, out io.Writer) error {
	transport := api.Socket(socket)
	defer transport.CloseIdleConnections()
	client := api.NewClient(transport)
	a, err := find(ctx, client, api.Filter{Tool: "mail", Key: key})
	if err != nil {
		return fmt.Errorf("find %s: %w", key, err)
	}
	if a, err = client.Status(ctx, a.StatusRef, 10*time.Second); err != nil {
		return fmt.Errorf("wait for %s: %w", key, err)
	}
	_, err = fmt.Fprintf(out, "%s: %s, attempts %d, result %s\n", key, a.Status, a.Attempts, a.Result)
	return err
}

// find waits for the moment between the commit of a row in outbox_intake and
// the operation that is made of it.
func find(ctx context.Context, client *api.Client, f api.Filter) (api.Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	again := time.NewTicker(5 * time.Millisecond)
	defer again.Stop()
	for {
		a, err := client.Find(ctx, f)
		if p, no := errors.AsType[*api.Problem](err); !no || p.Code != "NOT_FOUND" {
			return a, err
		}
		select {
		case <-ctx.Done():
			return a, ctx.Err()
		case <-again.C:
		}
	}
}
