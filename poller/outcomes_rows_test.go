package poller_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/outboxd/outboxd/config"
	"github.com/outboxd/outboxd/handler"
)

type group struct {
	title string
	rows  []situation
}

func situations(t *testing.T) []group {
	return []group{
		{"HTTP: before the first byte of the request", neverLeft(t)},
		{"HTTP: no whole answer", brokenOff(t)},
		{"HTTP: an answer", withStatus(t)},
		{"Programs: not started", neverRan(t)},
		{"Programs: how they end", endings()},
		{"Programs: what they say", sayings()},
	}
}

func neverLeft(t *testing.T) []situation {
	names(t)
	trusted := certify(t, "localhost", time.Now().Add(time.Hour))
	expired := certify(t, "localhost", time.Now().Add(-time.Hour))
	other := certify(t, "elsewhere.example", time.Now().Add(time.Hour))
	none := closed(t)
	return []situation{
		{"the name does not exist", handler.NotSent, "dns", to("http://missing.test/x"), false},
		{"the name server fails", handler.NotSent, "dns", to("http://broken.test/x"), false},
		{"the name server is silent", handler.NotSent, "dns", to("http://silent.test/x"), true},
		{"connection refused", handler.NotSent, "connect", to("http://" + none + "/x"), false},
		{"no way to the network", handler.NotSent, "connect", to("http://255.255.255.255/x"), false},
		{"TLS: certificate expired", handler.NotSent, "tls_expired", expired.aim(t, nil), false},
		{"TLS: certificate of another name", handler.NotSent, "tls_wrong_name", other.aim(t, nil), false},
		{"TLS: certificate of nobody we trust", handler.NotSent, "tls_untrusted", trusted.aim(t, func(c *config.Tool) { c.HTTP.CAFile = "" }), false},
		{"TLS: the port speaks plain HTTP", handler.NotSent, "tls_plain", secured(peer(t, greets(status("400 Bad Request")))), false},
		{"TLS: the port speaks something else", handler.NotSent, "tls_plain", secured(peer(t, greets("220 mail.example ESMTP\r\n"))), false},
		{"TLS: version 1.0 only", handler.NotSent, "tls", trusted.old(t), false},
		{"TLS: the handshake breaks off", handler.NotSent, "tls", secured(peer(t, greets(""))), false},
		{"TLS: the handshake hangs", handler.NotSent, "tls", secured(peer(t, hangs(t, ""))), true},
		{"the proxy is not there", handler.NotSent, "connect", through("http://"+none, "https://target.test/x"), false},
		{"the proxy wants a password", handler.NotSent, "proxy_407", through("http://"+peer(t, says(status("407 Proxy Authentication Required"))), "https://target.test/x"), false},
		{"the proxy cannot reach the target", handler.NotSent, "proxy_502", through("http://"+peer(t, says(status("502 Bad Gateway"))), "https://target.test/x"), false},
	}
}

func brokenOff(t *testing.T) []situation {
	const maybe = handler.MayHaveHappened
	head := "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n"
	wants := certify(t, "localhost", time.Now().Add(time.Hour))
	return []situation{
		{"the connection is reset after the first byte", maybe, "no_answer", at(peer(t, resets)), false},
		{"the server reads the request and hangs up", maybe, "no_answer", at(peer(t, says(""))), false},
		{"the server reads the request and says nothing", maybe, "timeout", at(peer(t, hangs(t, ""))), true},
		{"the server wants a client certificate (TLS 1.3)", maybe, "no_answer", wants.demanding(t), false},
		{"garbage instead of an answer", maybe, "garbage", at(peer(t, says("what?\r\n\r\n"))), false},
		{"half a header", maybe, "garbage", at(peer(t, says("HTTP/1.1 200 OK\r\nContent-Le"))), false},
		{"a header without end", maybe, "garbage", at(peer(t, says("HTTP/1.1 200 OK\r\nX: "+strings.Repeat("x", 1<<17)))), false},
		{"a header and no body", maybe, "timeout", at(peer(t, hangs(t, head))), true},
		{"the body breaks off", maybe, "broken_off", at(peer(t, says(head+"{"))), false},
		{"the body breaks off within a chunk", maybe, "broken_off", at(peer(t, says("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{"))), false},
		{"the body drips", maybe, "timeout", at(peer(t, drips(t, head))), true},
		{"100, then nothing", maybe, "timeout", at(peer(t, hangs(t, "HTTP/1.1 100 Continue\r\n\r\n"))), true},
		{"103, then the end", maybe, "garbage", at(peer(t, says("HTTP/1.1 103 Early Hints\r\n\r\n"))), false},
		{"103 without end", maybe, "garbage", at(peer(t, says(strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 1<<13)))), false},
		{"101", maybe, "http_101", at(peer(t, says("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"))), false},
	}
}

func withStatus(t *testing.T) []situation {
	const (
		done, no, again, maybe = handler.Succeeded, handler.Rejected, handler.TryAgain, handler.MayHaveHappened
		long                   = "Retry-After: 600\r\n"
	)
	answer := func(what string, class handler.Observed, line, header, body string) situation {
		return situation{what, class, "http_" + line[:3], at(peer(t, says(reply(line, header, body)))), false}
	}
	date := func(layout string) string {
		return "Retry-After: " + time.Now().Add(10*time.Minute).UTC().Format(layout) + "\r\n"
	}
	return []situation{
		answer("200 with JSON", done, "200 OK", "", `{"id":7}`),
		answer("200, body empty", done, "200 OK", "", ""),
		answer("200, body no JSON", done, "200 OK", "Content-Type: text/html\r\n", "<html>"),
		answer("200, a name twice in the JSON", done, "200 OK", "", `{"a":1,"a":2}`),
		answer("200, body too long", done, "200 OK", "", `"`+strings.Repeat("x", 1<<20)+`"`),
		answer("200, body that unpacks to 1 GiB", done, "200 OK", "Content-Encoding: gzip\r\n", bomb()),
		{"103, then 200", done, "http_200", at(peer(t, says("HTTP/1.1 103 Early Hints\r\n\r\n"+ok))), false},
		answer("201", done, "201 Created", "", ""), answer("202", done, "202 Accepted", "", ""), answer("204", done, "204 No Content", "", ""),
		answer("301", no, "301 Moved Permanently", "Location: /new\r\n", ""), answer("302", maybe, "302 Found", "Location: /new\r\n", ""),
		answer("303", maybe, "303 See Other", "Location: /new\r\n", ""), answer("304", maybe, "304 Not Modified", "", ""),
		answer("307", no, "307 Temporary Redirect", "Location: /new\r\n", ""), answer("308", no, "308 Permanent Redirect", "Location: /new\r\n", ""),
		answer("400", no, "400 Bad Request", "", ""), answer("401", no, "401 Unauthorized", "", ""), answer("403", no, "403 Forbidden", "", ""),
		answer("404", no, "404 Not Found", "", ""), answer("405", no, "405 Method Not Allowed", "", ""),
		answer("408", again, "408 Request Timeout", "", ""), answer("409", handler.InProgress, "409 Conflict", "", ""),
		answer("410", no, "410 Gone", "", ""), answer("413", no, "413 Content Too Large", "", ""), answer("422", no, "422 Unprocessable Content", "", ""),
		answer("425", again, "425 Too Early", "", ""), answer("429", again, "429 Too Many Requests", "", ""),
		answer("429, Retry-After in seconds", again, "429 Too Many Requests", long, ""),
		answer("429, Retry-After as a date", again, "429 Too Many Requests", date(http.TimeFormat), ""),
		answer("429, Retry-After as a date of RFC 850", again, "429 Too Many Requests", date("Monday, 02-Jan-06 15:04:05 GMT"), ""),
		answer("429, Retry-After as a date of asctime", again, "429 Too Many Requests", date(time.ANSIC), ""),
		answer("429, Retry-After is nothing known", again, "429 Too Many Requests", "Retry-After: soon\r\n", ""),
		answer("500", maybe, "500 Internal Server Error", "", ""), answer("501", maybe, "501 Not Implemented", "", ""),
		answer("502", maybe, "502 Bad Gateway", "", ""), answer("503", maybe, "503 Service Unavailable", "", ""),
		answer("503, Retry-After in seconds", again, "503 Service Unavailable", long, ""),
		answer("503, Retry-After as a date", again, "503 Service Unavailable", date(http.TimeFormat), ""),
		answer("503, Retry-After is nothing known", maybe, "503 Service Unavailable", "Retry-After: soon\r\n", ""),
		answer("504", maybe, "504 Gateway Timeout", "", ""), answer("599", maybe, "599 Unknown", "", ""),
	}
}

func neverRan(t *testing.T) []situation {
	const no = handler.NotSent
	dir := t.TempDir()
	busy := file(t, dir, "busy", "#!/bin/sh\n", 0o700)
	writes(t, busy)
	return []situation{
		{"the program is missing", no, "not_found", program(dir + "/missing"), false},
		{"the file is not executable", no, "not_executable", program(file(t, dir, "plain", "#!/bin/sh\n", 0o600)), false},
		{"the interpreter that it names is missing", no, "bad_interpreter", program(file(t, dir, "interpreter", "#!/nonexistent/sh\n", 0o700)), false},
		{"the file is no program", no, "bad_format", program(file(t, dir, "format", "nothing known", 0o700)), false},
		{"somebody is writing to the file", no, "text_busy", program(busy), false},
		{"the working directory is missing", no, "dir_missing", func(c *config.Tool) { script("exit 0")(c); c.Exec.Dir = dir + "/missing" }, false},
		{"the arguments are too long", no, "arguments_too_long", script(strings.Repeat("x", 1<<18)), false},
	}
}

func endings() []situation {
	const maybe = handler.MayHaveHappened
	return []situation{
		{"exit 0, last line JSON", handler.Succeeded, "exit_0", script(`echo '{"id":7}'`), false},
		{"exit 0, nothing said", handler.Succeeded, "exit_0", script("exit 0"), false},
		{"exit 0, its input not read", handler.Succeeded, "exit_0", script("exec 0<&-; exit 0"), false},
		{"exit 0, a child keeps the output", handler.Succeeded, "exit_0", script("sleep 300 & echo '[1]'"), false},
		{"exit 0, a child of another session keeps the output", handler.Succeeded, "exit_0", script("(setsid sleep 300) & echo '[1]'"), false},
		{"exit code under `rejected`", handler.Rejected, "exit_3", script("exit 3"), false},
		{"exit code under `try_again` (75)", handler.TryAgain, "exit_75", script("exit 75"), false},
		{"exit 1", maybe, "exit_1", script("exit 1"), false},
		{"exit 126", maybe, "exit_126", script("exit 126"), false},
		{"exit 127: a shell that found no program", maybe, "exit_127", script("nonexistent-program"), false},
		{"exit 255", maybe, "exit_255", script("exit 255"), false},
		{"it crashes (SIGSEGV)", maybe, "signal_11", script("kill -SEGV $$"), false},
		{"it is killed (SIGKILL)", maybe, "signal_9", script("kill -KILL $$"), false},
		{"the time limit", maybe, "timeout", script("exec sleep 300"), true},
		{"the time limit, SIGTERM ignored", maybe, "timeout", script("trap '' TERM; sleep 300; sleep 300"), true},
		{"the time limit, a child in another session", maybe, "timeout", script("setsid sleep 300 & exec sleep 300"), true},
		{"it prints without end", maybe, "timeout", script("exec yes lantern"), true},
	}
}

func sayings() []situation {
	line := func(what string, class handler.Observed, code, said string) situation {
		return situation{what, class, code, script("echo '" + said + "'"), false}
	}
	return []situation{
		{"`applied`, whatever the exit code", handler.Succeeded, "outcome_applied", script(`echo '{"outcome":"applied","result":7}'; exit 9`), false},
		line("`rejected`", handler.Rejected, "outcome_rejected", `{"outcome":"rejected","reason":"closed"}`),
		line("`retry`", handler.TryAgain, "outcome_retry", `{"outcome":"retry"}`),
		line("`retry` with `retry_after`", handler.TryAgain, "outcome_retry", `{"outcome":"retry","retry_after":"10m"}`),
		line("`in_progress`", handler.InProgress, "outcome_in_progress", `{"outcome":"in_progress"}`),
		line("`unknown`", handler.MayHaveHappened, "outcome_unknown", `{"outcome":"unknown"}`),
		line("`not_applied`, which answers a question", handler.MayHaveHappened, "outcome_not_applied", `{"outcome":"not_applied"}`),
		line("`conflict`, which answers a question", handler.MayHaveHappened, "outcome_conflict", `{"outcome":"conflict"}`),
		line("an outcome that does not exist", handler.MayHaveHappened, "bad_outcome", `{"outcome":"done"}`),
		line("an outcome in broken JSON", handler.MayHaveHappened, "bad_outcome", `{"outcome":"rejected","reason":"the "big" one"}`),
	}
}

// The two attempts that questions are put about.
const (
	heard   = "an answer"
	unheard = "no answer"
)

func attempts(t *testing.T) map[string]func(*config.Tool) {
	return map[string]func(*config.Tool){
		heard:   at(peer(t, says(status("500 Internal Server Error")))),
		unheard: at(peer(t, says(""))),
	}
}

func inquiries(t *testing.T) []inquiry {
	web := func(what string, found handler.Found, code, after string, talk talk) inquiry {
		url := "http://" + peer(t, talk) + "/of/{key}"
		return inquiry{what, found, code, after, func(c *config.Tool) { c.Query = &config.Query{HTTP: &config.HTTP{URL: url}, Timeout: c.Timeout} }, code == "timeout"}
	}
	run := func(what string, found handler.Found, code, after, text string) inquiry {
		return inquiry{what, found, code, after, func(c *config.Tool) {
			c.Query = &config.Query{Exec: &config.Exec{Argv: []string{"/bin/sh", "-c", text}}}
		}, false}
	}
	return []inquiry{
		web("200", handler.Applied, "http_200", heard, says(ok)),
		web("200", handler.Applied, "http_200", unheard, says(ok)),
		web("404", handler.NotApplied, "http_404", heard, says(status("404 Not Found"))),
		web("404, too early", handler.NotApplied, "http_404", unheard, says(status("404 Not Found"))),
		web("202", handler.InProgress, "http_202", heard, says(status("202 Accepted"))),
		web("409", handler.InProgress, "http_409", heard, says(status("409 Conflict"))),
		web("204", handler.NoAnswer, "http_204", heard, says(status("204 No Content"))),
		web("302", handler.NoAnswer, "http_302", heard, says(status("302 Found"))),
		web("403", handler.NoAnswer, "http_403", heard, says(status("403 Forbidden"))),
		web("410", handler.NoAnswer, "http_410", heard, says(status("410 Gone"))),
		web("500", handler.NoAnswer, "http_500", heard, says(status("500 Internal Server Error"))),
		web("503, Retry-After", handler.NoAnswer, "http_503", heard, says(reply("503 Service Unavailable", "Retry-After: 600\r\n", ""))),
		web("the body breaks off", handler.NoAnswer, "broken_off", heard, says("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")),
		web("the server hangs up", handler.NoAnswer, "no_answer", heard, says("")),
		web("the server says nothing", handler.NoAnswer, "timeout", heard, hangs(t, "")),
		run("a program says `applied`", handler.Applied, "outcome_applied", unheard, `echo '{"outcome":"applied"}'`),
		run("a program says `not_applied`", handler.NotApplied, "outcome_not_applied", heard, `echo '{"outcome":"not_applied"}'`),
		run("a program says `in_progress`", handler.InProgress, "outcome_in_progress", heard, `echo '{"outcome":"in_progress"}'`),
		run("a program says `conflict`", handler.Conflict, "outcome_conflict", heard, `echo '{"outcome":"conflict"}'`),
		run("a program ends with exit 0", handler.Applied, "exit_0", heard, `exit 0`),
		run("a program ends with exit 1", handler.NoAnswer, "exit_1", heard, `exit 1`),
	}
}
