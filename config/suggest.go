package config

import "strings"

// suggest returns the known word that was most likely meant, or "" if none is near.
func suggest(word string, known []string) string {
	best, limit := "", len(word)/3+1
	for _, k := range known {
		if d := distance(strings.ToLower(word), k); d <= limit && d < len(k) {
			best, limit = k, d-1
		}
	}
	return best
}

// distance counts the insertions, deletions, substitutions and swaps of
// neighbours that make b of a. Words far longer than any key are simply far.
func distance(a, b string) int {
	if len(a) > 64 || len(b) > 64 {
		return max(len(a), len(b))
	}
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		next := make([]int, len(b)+1)
		next[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			next[j] = min(row[j]+1, next[j-1]+1, row[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				next[j] = min(next[j], before[j-2]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
