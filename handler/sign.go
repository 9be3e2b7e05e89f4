package handler

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/outboxd/outboxd/config"
)

// The bounds of a secret, in bytes, and how many may be active (Standard Webhooks:
// Signature scheme; Key rotation).
const (
	shortestKey = 24
	longestKey  = 64
	mostKeys    = 2
)

// signer signs requests as Standard Webhooks says. With two secrets it signs once
// with each, so that a receiver accepts either while it changes over.
type signer struct{ keys []*standardwebhooks.Webhook }

// newSigner reads the secrets, a line each, and what of them must not be shown.
func newSigner(s config.Sign) (*signer, []string, error) {
	content, err := read(s.SecretsFile)
	if err != nil {
		return nil, nil, fmt.Errorf("read sign.secrets_file: %w", err)
	}
	lines := strings.Fields(string(content))
	if len(lines) == 0 || len(lines) > mostKeys {
		return nil, nil, fmt.Errorf("sign.secrets_file has %d secrets: allowed are one, or two while one takes over from the other", len(lines))
	}
	sign := &signer{}
	var secrets []string
	for _, line := range lines {
		bare, ok := strings.CutPrefix(line, "whsec_")
		key, err := base64.StdEncoding.DecodeString(bare)
		if !ok || err != nil || len(key) < shortestKey || len(key) > longestKey {
			return nil, nil, fmt.Errorf("sign.secrets_file holds what is no secret: allowed is whsec_ and the base64 of %d to %d bytes", shortestKey, longestKey)
		}
		w, err := standardwebhooks.NewWebhookRaw(key)
		if err != nil {
			return nil, nil, errors.New("sign.secrets_file holds a secret that cannot be used")
		}
		sign.keys = append(sign.keys, w)
		secrets = append(secrets, line, bare, string(key))
	}
	return sign, secrets, nil
}

// sign sets the three headers. The id is the same for each attempt, so that a
// receiver can tell a repetition; the time is that of the attempt.
func (s *signer) sign(h http.Header, id string, body []byte, now time.Time) error {
	var signatures []string
	for _, key := range s.keys {
		one, err := key.Sign(id, now, body)
		if err != nil {
			return err
		}
		signatures = append(signatures, one)
	}
	h.Set(standardwebhooks.HeaderWebhookID, id)
	h.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	h.Set(standardwebhooks.HeaderWebhookSignature, strings.Join(signatures, " "))
	return nil
}
