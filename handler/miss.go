package handler

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"syscall"
)

// miss is a request that brought no whole answer.
type miss struct {
	observed Observed
	code     string
	note     string // the operating system's or our words: no name, no address
}

func (m *miss) outcome(hide redactor, body []byte) Outcome {
	return Outcome{
		Observed: m.observed,
		Code:     m.code,
		Excerpt:  hide.head([]byte(m.note), body),
		Answered: m.observed == NotSent,
	}
}

// unsentCode says where a request stopped of which no byte left.
func (a *attempt) unsentCode(ctx context.Context, err error) string {
	var proxy *proxyRefusal
	var name *net.DNSError
	switch {
	case errors.As(err, &proxy):
		return fmt.Sprintf("proxy_%d", proxy.status)
	case outOfDescriptors(err):
		return "descriptors"
	case errors.As(err, &name):
		return "dns"
	}
	if code := certificateCode(err); code != "" {
		return code
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return codeCancelled
	}
	switch a.phase.Load() {
	case phaseDNS:
		return "dns"
	case phaseTLS:
		return "tls"
	case phaseReady, phaseAnswer:
		return "connection_lost"
	case phaseConnect:
		return "connect"
	}
	if ctx.Err() != nil {
		return endedBy(ctx)
	}
	return "connect"
}

// certificateCode names what is wrong with the other side's TLS; empty if it
// is something else.
func certificateCode(err error) string {
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	var verify *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	switch {
	case errors.As(err, &host):
		return "tls_wrong_name"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "tls_expired"
	case errors.As(err, &unknown):
		return "tls_untrusted"
	case errors.As(err, &record):
		return "tls_plain" // the other side does not speak TLS
	case errors.As(err, &verify), errors.As(err, &invalid):
		return "tls"
	}
	return ""
}

func outOfDescriptors(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// note is what may be said of an error: the operating system's words for its
// number, ours for what a resolver came to. Other texts may quote a URL.
func note(err error) string {
	var number syscall.Errno
	var name *net.DNSError
	switch {
	case errors.As(err, &number):
		return number.Error()
	case !errors.As(err, &name):
		return ""
	case name.IsNotFound:
		return "no such name"
	case name.IsTimeout:
		return "the name server did not answer in time"
	}
	return "the name server failed"
}
