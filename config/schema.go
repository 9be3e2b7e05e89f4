package config

import _ "embed"

//go:embed outboxd.schema.json
var schema []byte

// Schema is a JSON Schema (2020-12) of the file for editors: keys, types, words,
// ranges and what each is for. What keys come to together, only Parse judges. It is
// made from the types of this package by `go test ./config -update`.
func Schema() []byte { return append([]byte(nil), schema...) }
