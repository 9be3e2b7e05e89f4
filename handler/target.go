package handler

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/outboxd/outboxd/config"
)

// newEndpoint reads everything that a target needs, so that what cannot be
// right is refused before the first attempt.
func newEndpoint(h config.HTTP, reuse int) (*endpoint, error) {
	target, err := url.Parse(h.URL)
	if err != nil || target.Host == "" || (target.Scheme != "http" && target.Scheme != "https") {
		return nil, errors.New("http.url is no http or https URL") // the parser's error quotes it
	}
	e := &endpoint{url: h.URL, method: h.Method, header: http.Header{}}
	if e.method == "" {
		e.method = http.MethodPost
	}
	for _, field := range h.Headers {
		if err := e.addHeader(field); err != nil {
			return nil, err
		}
	}
	if h.Sign != nil {
		sign, secrets, err := newSigner(*h.Sign)
		if err != nil {
			return nil, err
		}
		e.sign, e.secrets = sign, append(e.secrets, secrets...)
	}
	trust, err := tlsConfig(h)
	if err != nil {
		return nil, err
	}
	proxy, err := e.proxy(h.Proxy)
	if err != nil {
		return nil, err
	}
	e.wire = newWire(target, trust, proxy, reuse)
	return e, nil
}

func (e *endpoint) addHeader(field config.Header) error {
	name := textproto.CanonicalMIMEHeaderKey(field.Name)
	if !config.IsHeaderName(name) {
		return fmt.Errorf("header %q: no header name", field.Name)
	}
	if config.IsReservedHeader(name) {
		return fmt.Errorf("header %q: set by outboxd itself", field.Name)
	}
	value := field.Value
	if field.ValueFile != "" {
		content, err := read(field.ValueFile)
		if err != nil {
			return fmt.Errorf("read value_file of header %q: %w", field.Name, err)
		}
		value = strings.TrimRight(string(content), "\r\n")
	}
	if value == "" || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return fmt.Errorf("header %q: its value is empty or has control characters", field.Name)
	}
	e.secrets = append(e.secrets, secretsOfHeader(value)...)
	if name == "Host" {
		e.host = value
		return nil
	}
	e.header.Add(name, value)
	return nil
}

func (e *endpoint) proxy(text string) (*url.URL, error) {
	if text == "" {
		return nil, nil
	}
	proxy, err := url.Parse(text)
	if err != nil || proxy.Host == "" {
		return nil, errors.New("http.proxy is no URL")
	}
	if !slices.Contains([]string{"http", "https", "socks5", "socks5h"}, proxy.Scheme) {
		return nil, errors.New("http.proxy is neither http, https nor socks5")
	}
	e.proxied = true
	e.secrets = append(e.secrets, secretsOf(proxy)...)
	return proxy, nil
}

// tlsConfig never skips a check: ca_file replaces the system's roots.
func tlsConfig(h config.HTTP) (*tls.Config, error) {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if h.CAFile != "" {
		pem, err := read(h.CAFile)
		if err != nil {
			return nil, fmt.Errorf("read ca_file: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("ca_file holds no certificate")
		}
	}
	if h.CertFile != "" || h.KeyFile != "" {
		pair, err := keyPair(h.CertFile, h.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("read cert_file and key_file: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}

func keyPair(certFile, keyFile string) (tls.Certificate, error) {
	cert, err := read(certFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	key, err := read(keyFile)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.X509KeyPair(cert, key)
}
