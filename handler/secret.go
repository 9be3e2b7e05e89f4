package handler

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// maxSecretFile bounds a file of secrets or certificates, in bytes.
const maxSecretFile = 1 << 20

// credentials is the directory into which systemd puts a service's credentials
// (systemd.exec(5), LoadCredential=), as it is written in the config.
const credentials = "CREDENTIALS_DIRECTORY"

// read reads a file that the config names. A path may begin with
// $CREDENTIALS_DIRECTORY/, which stands for the directory of this service's
// credentials; no other variable is looked up.
func read(path string) ([]byte, error) {
	path, err := located(path)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	content, err := io.ReadAll(io.LimitReader(f, maxSecretFile+1))
	if err == nil && len(content) > maxSecretFile {
		err = fmt.Errorf("it is longer than %d bytes", maxSecretFile)
	}
	return content, err
}

func located(path string) (string, error) {
	name, ok := strings.CutPrefix(path, "$"+credentials+"/")
	if !ok {
		return path, nil
	}
	dir := os.Getenv(credentials)
	if dir == "" {
		return "", errors.New("$" + credentials + " is not set: the service has no LoadCredential=, or this is no service")
	}
	if !filepath.IsLocal(name) {
		return "", errors.New("the name of a credential leads out of $" + credentials)
	}
	return filepath.Join(dir, name), nil
}
