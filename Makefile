# make check is what a change must pass; .ci/run calls it too.

SHELL      := /bin/bash -o pipefail
GO         ?= go
TOOL       := $(GO) tool -modfile=tools/go.mod
# A count: with a time, go 1.26 sometimes fails a target at its end (go.dev/issue/75804).
FUZZTIME   ?= 50000x
BENCHFLAGS ?=
TESTFLAGS  ?=
CMD        := $(wildcard cmd/outboxd)

.PHONY: check fmt vet lint libc test build chaos chaos-quick bench fuzz-quick cover clean

check: fmt vet lint libc test chaos-quick build

fmt: # lists what gofmt would change
	@list=$$(find . -name '*.go' -not -path '*/testdata/*' -not -path '*/.*' -print0 | xargs -0r gofmt -l) || exit 1; \
	if [ -n "$$list" ]; then printf 'gofmt would change:\n%s\n' "$$list"; exit 1; fi

vet:
	$(GO) vet ./...

lint: # built from source once, then from the build cache
	$(TOOL) golangci-lint run ./...

libc: # modernc.org/sqlite works only with the libc that its own go.mod names
	@mod=$$($(GO) list -m -f '{{.GoMod}}' modernc.org/sqlite) && have=$$($(GO) list -m -f '{{.Version}}' modernc.org/libc) || exit 1; \
	want=$$(awk '$$1 == "require" { sub(/^require /, "") } $$1 == "modernc.org/libc" { print $$2 }' "$$mod"); \
	if [ -z "$$want" ] || [ "$$have" != "$$want" ]; then echo "modernc.org/libc is $$have, sqlite wants '$$want'"; exit 1; fi

test: # the race detector needs a C compiler
	CGO_ENABLED=1 $(TOOL) gotestsum --format pkgname-and-test-fails --format-hide-empty-pkg -- -race -shuffle=on -timeout 20m $(TESTFLAGS) $$($(GO) list ./... | grep -v '/chaos$$')

build:
ifneq ($(CMD),)
	CGO_ENABLED=0 $(GO) build -trimpath -o bin/outboxd ./cmd/outboxd
endif

chaos-quick: # a sample, under two minutes; most of it waits, so many run at a time
	$(GO) test -count=1 -timeout 10m -parallel 8 ./chaos

chaos: # the whole, under an hour; its figures go into docs/chaos.md
	OUTBOXD_CHAOS=full OUTBOXD_FIGURES=write $(GO) test -count=1 -timeout 60m -parallel 8 ./chaos

bench: # about a quarter of an hour on a quiet machine; BENCHFLAGS=-quick for a minute
	cd bench && $(GO) run . $(BENCHFLAGS)

fuzz-quick: # each fuzz target for FUZZTIME
	@for pkg in $$($(GO) list ./...); do \
		targets=$$($(GO) test -list '^Fuzz' "$$pkg") || { echo "$$targets"; exit 1; }; \
		for f in $$(grep '^Fuzz' <<<"$$targets"); do \
			echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) "$$pkg" || exit 1; \
		done; \
	done

cover:
	$(GO) test -coverpkg=./... -coverprofile=cover.out ./...
	$(GO) tool cover -func=cover.out | tail -n 1

clean:
	rm -rf bin cover.out
