package handler_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/handler"
)

func secret(of byte) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{of}, 32))
}

func secretsFile(t *testing.T, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secrets")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// signed is one request that arrived.
type signed struct {
	header http.Header
	body   string
}

func receiver(t *testing.T) (string, func() signed) {
	t.Helper()
	var last signed
	s := serve(t, func(w http.ResponseWriter, r *http.Request) { last = signed{r.Header, swallow(r.Body)} })
	return s.URL, func() signed { return last }
}

// check is one question to a verifier written in Python.
type check struct {
	How     string            `json:"how"`
	Secret  string            `json:"secret"`
	Headers map[string]string `json:"headers"`
	Body    string            `json:"body"`
	want    bool
}

func (m signed) check(how, key string, want bool) check {
	headers := map[string]string{}
	for _, name := range []string{"webhook-id", "webhook-timestamp", "webhook-signature"} {
		headers[name] = m.header.Get(name)
	}
	return check{How: how, Secret: key, Headers: headers, Body: m.body, want: want}
}

// verify asks all at once: an interpreter takes its time to start.
func verify(t *testing.T, checks []check) {
	t.Helper()
	message, err := json.Marshal(checks)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("python3", "testdata/verify.py")
	cmd.Env = append(os.Environ(), "PYTHONPATH="+officialPython(t), "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stdin, cmd.Stderr = bytes.NewReader(message), os.Stderr
	said, err := cmd.Output()
	var got []bool
	if err := errors.Join(err, json.Unmarshal(said, &got)); err != nil || len(got) != len(checks) {
		t.Fatalf("verifier: %v, %s", err, said)
	}
	for i, c := range checks {
		if got[i] != c.want {
			t.Errorf("%s: accepted %t, want %t: %+v", c.How, got[i], c.want, c)
		}
	}
}

// officialPython is where the official verifier in Python lies: the module of the
// Go library is the repository's directory with all its languages.
func officialPython(t *testing.T) string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/standard-webhooks/standard-webhooks/libraries").Output()
	if err != nil || strings.TrimSpace(string(dir)) == "" {
		t.Fatalf("find the module: %q, %v", dir, err)
	}
	return filepath.Join(strings.TrimSpace(string(dir)), "python")
}

func TestSignatureIsAcceptedByVerifiersOfOthersAlsoWhileSecretsRotate(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3 here")
	}
	url, last := receiver(t)
	var checks []check
	retired, present, next := secret(1), secret(2), secret(3)
	for _, tt := range []struct{ active, valid, invalid []string }{
		{[]string{present}, []string{present}, []string{retired, next}},
		{[]string{next, present}, []string{present, next}, []string{retired}},
		{[]string{next}, []string{next}, []string{retired, present}},
	} {
		tool := post(url)
		tool.HTTP.Sign = &config.Sign{SecretsFile: secretsFile(t, tt.active...)}
		c := call()
		c.Arguments = []byte(`{"note":"Grüße 🚀","order":17}`)
		if out := build(t, tool).Handler.Execute(within(t, time.Minute), c); out.Observed != handler.Succeeded {
			t.Fatalf("outcome %+v", out)
		}
		m := last()
		if m.header.Get("webhook-id") != c.StatusRef || m.body != string(c.Arguments) {
			t.Errorf("id %q, body %q", m.header.Get("webhook-id"), m.body)
		}
		forged := m
		forged.body = strings.Replace(m.body, "17", "18", 1)
		for _, how := range []string{"official", "specification"} {
			for _, key := range tt.valid {
				checks = append(checks, m.check(how, key, true), forged.check(how, key, false))
			}
			for _, key := range tt.invalid {
				checks = append(checks, m.check(how, key, false))
			}
		}
		for _, key := range tt.valid {
			verifier, err := standardwebhooks.NewWebhook(key)
			if err != nil {
				t.Fatal(err)
			}
			if err := verifier.Verify([]byte(m.body), m.header); err != nil {
				t.Errorf("the official verifier in Go: %v", err)
			}
		}
	}
	verify(t, checks)
}

func TestSecretsFileThatCannotBeRightIsRefusedAndNotQuoted(t *testing.T) {
	short := "whsec_" + base64.StdEncoding.EncodeToString([]byte("too-short-k3y"))
	for name, lines := range map[string][]string{
		"empty": {""}, "three": {secret(1), secret(2), secret(3)}, "short": {short},
		"no prefix": {strings.TrimPrefix(secret(1), "whsec_")}, "no base64": {"whsec_k3y-of-ours!"}, "asymmetric": {"whsk_" + secret(1)[6:]},
	} {
		tool := post("http://127.0.0.1:1/")
		tool.HTTP.Sign = &config.Sign{SecretsFile: secretsFile(t, lines...)}
		_, err := handler.Build(tool)
		if err == nil {
			t.Errorf("%s: built", name)
			continue
		}
		for _, line := range lines {
			if len(line) > 8 && strings.Contains(err.Error(), line[6:]) {
				t.Errorf("%s: %v quotes the secret", name, err)
			}
		}
	}
}

func TestEchoedSecretsOfSignaturesAreNotEvidence(t *testing.T) {
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
		say(w, "debug: key is "+secret(7))
	})
	tool := post(s.URL)
	tool.HTTP.Sign = &config.Sign{SecretsFile: secretsFile(t, secret(7))}
	if out := build(t, tool).Handler.Execute(within(t, time.Minute), call()); out.Excerpt != "debug: key is [redacted]" {
		t.Errorf("excerpt %q", out.Excerpt)
	}
}

func TestHeaderValuesAndSecretsComeFromCredentials(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"token": "Bearer t0k3n\n", "keys": secret(4)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	url, last := receiver(t)
	tool := post(url)
	tool.HTTP.Headers = []config.Header{{Name: "Authorization", ValueFile: "$CREDENTIALS_DIRECTORY/token"}}
	tool.HTTP.Sign = &config.Sign{SecretsFile: "$CREDENTIALS_DIRECTORY/keys"}
	t.Setenv("CREDENTIALS_DIRECTORY", "")
	if _, err := handler.Build(tool); err == nil || !strings.Contains(err.Error(), "LoadCredential=") {
		t.Errorf("without credentials: %v", err)
	}
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	if out := build(t, tool).Handler.Execute(within(t, time.Minute), call()); out.Observed != handler.Succeeded {
		t.Fatalf("outcome %+v", out)
	}
	m := last()
	verifier, err := standardwebhooks.NewWebhook(secret(4))
	if err != nil {
		t.Fatal(err)
	}
	if got := m.header.Get("Authorization"); got != "Bearer t0k3n" || verifier.Verify([]byte(m.body), m.header) != nil {
		t.Errorf("Authorization %q, headers %v", got, m.header)
	}
	tool.HTTP.Headers[0].ValueFile = "$CREDENTIALS_DIRECTORY/../x"
	if _, err := handler.Build(tool); err == nil {
		t.Error("a credential outside the directory: built")
	}
}
