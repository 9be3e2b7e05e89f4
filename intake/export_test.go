package intake

// The hot statements, for the test of their plans.
var Statements = map[string]string{
	"accept":    insertSQL,
	"look":      lookSQL,
	"childless": childlessSQL,
	"intake":    waitingSQL,
	"scope": `SELECT ` + columns + ` FROM outbox_operation
		WHERE tenant_id = ? AND subject_id = ? AND tool_name = ? AND idempotency_key = ?`,
	"ref":  `SELECT ` + columns + ` FROM outbox_operation WHERE status_ref = ?`,
	"load": `SELECT ` + columns + ` FROM outbox_operation WHERE id IN (SELECT value FROM json_each(?))`,
}
