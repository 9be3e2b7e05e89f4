package api

import (
	"encoding/hex"

	"github.com/outboxd/outboxd/contract"
)

// Expected is what somebody who asks takes the operation to be. What is empty is not
// compared. Where something differs nothing is asked downstream.
type Expected struct {
	RequestSum     string  `json:"expected_request_sha256,omitzero"` // 64 lower-case hexadecimal digits
	IdempotencyKey string  `json:"idempotency_key,omitzero"`
	Origin         *Origin `json:"origin,omitzero"` // provider, api_family and adapter_revision; the call that asks is another one
}

// of names what differs from the stored row, in the order of Expected.
func (e *Expected) of(op *contract.Operation) (fields []string) {
	differs := func(field string, yes bool) {
		if yes {
			fields = append(fields, field)
		}
	}
	differs("request_sha256", e.RequestSum != "" && e.RequestSum != hex.EncodeToString(op.RequestSum[:]))
	differs("idempotency_key", e.IdempotencyKey != "" && e.IdempotencyKey != op.Scope.Key)
	if o := e.Origin; o != nil {
		differs("provider", o.Provider != op.Origin.Provider)
		differs("api_family", o.APIFamily != op.Origin.APIFamily)
		differs("adapter_revision", o.AdapterRevision != op.Origin.AdapterRevision)
	}
	return fields
}

func (e *Expected) empty() bool { return *e == Expected{} }

// expects refuses what is another operation than the caller takes it for.
func (s *API) expects(c *call, ref string, e *Expected) error {
	if e.empty() {
		return nil
	}
	stored, err := s.stored(c, ref)
	if err != nil {
		return err
	}
	if fields := e.of(stored); len(fields) > 0 {
		p := problem("IDEMPOTENCY_CONFLICT")
		p.Fields = fields
		return p
	}
	return nil
}
