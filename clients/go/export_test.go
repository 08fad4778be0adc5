package tollgate

// StopRounds leaves the rounds of leases to MakeRound.
func (c *Client) StopRounds() {
	if c.leases != nil {
		c.leases.schedule = nil
	}
}

// MakeRound makes one round of leases, and waits for its calls.
func (c *Client) MakeRound() {
	if c.leases != nil {
		c.leases.round()
	}
}

// WaitForTasks waits for the calls in the background.
func (c *Client) WaitForTasks() {
	if c.leases != nil {
		c.leases.tasks.Wait()
	}
}
