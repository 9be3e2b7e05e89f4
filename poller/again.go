package poller

import (
	"bytes"
	"context"
	"database/sql"
	"errors"

	"go.uber.org/zap"

	"github.com/outboxd/outboxd/ledger"
)

// A second success of one entry: two of its attempts have been answered with one.
// Unless the downstream deduplicates, that is a duplicate effect; if the results
// differ, the receipt that was recorded first is contradicted. It is too late to do
// anything about it, but somebody should know.

// againLate: this success came when the entry had been taken over. If it has been
// delivered since, there are two.
func (p *Poller) againLate(c claim, sum [32]byte) {
	var recorded []byte
	err := p.l.Read(context.Background(), func(v *ledger.View) error {
		err := v.One(`SELECT result_sha256 FROM outbox_receipt WHERE operation_id = ? AND token <> ?`, c.held.ID, c.held.Token).Scan(&recorded)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	if err == nil && recorded != nil {
		p.again(c, !bytes.Equal(recorded, sum[:]))
	}
}

// againDelivered: this success is recorded. If that of an earlier attempt had come
// late, there are two.
func (p *Poller) againDelivered(c claim) {
	var late bool
	err := p.l.Read(context.Background(), func(v *ledger.View) error {
		return v.One(`SELECT EXISTS (SELECT 1 FROM outbox_attempt WHERE operation_id = ? AND kind = 'late' AND class = 'succeeded')`,
			c.held.ID).Scan(&late)
	})
	if err == nil && late {
		p.again(c, false)
	}
}

func (p *Poller) again(c claim, conflict bool) {
	p.o.Observer.Again(c.tool.Name, c.op.Effect, conflict)
	p.log.Warn("a second attempt of one entry succeeded", p.fields(c, zap.String("effect", string(c.op.Effect)), zap.Bool("other_result", conflict))...)
}
