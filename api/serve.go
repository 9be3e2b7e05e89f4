package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"go.uber.org/zap"
)

// How a connection is bounded.
const (
	headerTime  = 10 * time.Second
	idleTime    = 2 * time.Minute
	headerBytes = 16 << 10
	stopTime    = 10 * time.Second // for requests that run when the server stops
)

type stoppingKey struct{}

// stopping is closed when callers that wait should be answered with what there
// is; nil: never.
func stopping(ctx context.Context) <-chan struct{} {
	ch, _ := ctx.Value(stoppingKey{}).(<-chan struct{})
	return ch
}

// Serve answers on a listener of Listen until ctx ends, then lets what runs end
// for at most ten seconds. Connections of another listener have no peer and may
// do nothing.
func Serve(ctx context.Context, l net.Listener, h http.Handler, log *zap.Logger) error {
	base := context.WithValue(context.WithoutCancel(ctx), stoppingKey{}, ctx.Done())
	failed, err := zap.NewStdLogAt(log, zap.ErrorLevel)
	if err != nil {
		return fmt.Errorf("make log: %w", err)
	}
	srv := &http.Server{
		Handler:           h,
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       knowPeer,
		ReadHeaderTimeout: headerTime,
		WriteTimeout:      transferTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    headerBytes,
		ErrorLog:          failed,
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(l) }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", errors.Join(err, srv.Close()))
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(base, stopTime)
	defer cancel()
	err = srv.Shutdown(limit)
	if errors.Is(err, context.DeadlineExceeded) {
		err = srv.Close() // who is still there has been given its time
	}
	if end := <-ended; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	if err != nil {
		return fmt.Errorf("stop serving: %w", err)
	}
	return nil
}

func knowPeer(ctx context.Context, c net.Conn) context.Context {
	if own, ok := c.(*conn); ok {
		return withPeer(ctx, own.peer)
	}
	return ctx
}
