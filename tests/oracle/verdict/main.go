// Reads rules files with the code of Envoy's reference service and prints what that says of each.
//
// Input, again and again: the length of a file in bytes, a newline, the file. Output for each: a
// line of JSON, with the limits of a file that is accepted or the reference's message. A panic that
// is none of its own errors, which would end the service, is reported after "panic: ".
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"

	gostats "github.com/lyft/gostats"

	"github.com/envoyproxy/ratelimit/src/config"
	"github.com/envoyproxy/ratelimit/src/settings"
	"github.com/envoyproxy/ratelimit/src/stats"
)

type judgement struct {
	Limits  *string `json:"limits"`
	Refusal string  `json:"refusal"`
}

func verdict(text string, statsManager stats.Manager) (judged judgement) {
	defer func() {
		if problem := recover(); problem != nil {
			judged.Refusal = fmt.Sprintf("panic: %v", problem)
			if known, ok := problem.(config.RateLimitConfigError); ok {
				judged.Refusal = string(known)
			}
		}
	}()
	file := config.RateLimitConfigToLoad{
		Name:       "rules.yaml",
		ConfigYaml: config.ConfigFileContentToYaml("rules.yaml", text),
	}
	limits := config.NewRateLimitConfigImpl([]config.RateLimitConfigToLoad{file}, statsManager, false).Dump()
	judged.Limits = &limits
	return judged
}

func main() {
	input := bufio.NewReader(os.Stdin)
	output := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(output)
	encoder.SetEscapeHTML(false)
	for {
		var length int
		if _, err := fmt.Fscanf(input, "%d\n", &length); err == io.EOF {
			return
		} else if err != nil {
			panic(err)
		}
		text := make([]byte, length)
		if _, err := io.ReadFull(input, text); err != nil {
			panic(err)
		}
		// Counters are never freed by the reference, so each file has a store of its own.
		store := gostats.NewStore(gostats.NewNullSink(), false)
		statsManager := stats.NewStatManager(store, settings.Settings{})
		if err := encoder.Encode(verdict(string(text), statsManager)); err != nil {
			panic(err)
		}
		if err := output.Flush(); err != nil {
			panic(err)
		}
	}
}
