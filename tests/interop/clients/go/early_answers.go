// Calls a host with Go's net/http: refusals that the host sends before it has read the body are read each
// time, and so is the answer to the next call of the same client.
package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
)

func post(client *http.Client, path string, body []byte) (int, error) {
	request, err := http.NewRequest("POST", os.Getenv("GRISTMILL_URL")+path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Authorization", "Bearer "+os.Getenv("RUNPOD_API_KEY"))
	answer, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	defer answer.Body.Close()
	_, err = io.Copy(io.Discard, answer.Body)
	return answer.StatusCode, err
}

func main() {
	const calls = 60
	failed := 0
	for _, size := range []int{5_000, 100_000, 1 << 20, 5 << 20} {
		client := &http.Client{Transport: &http.Transport{}}
		lost := 0
		for i := 0; i < calls; i++ {
			status, err := post(client, "/v2/none/run", make([]byte, size))
			if err != nil || status != http.StatusNotFound {
				fmt.Println(size, "bytes:", status, err)
				lost++
			}
			status, err = post(client, "/v2/echo/runsync", []byte(`{"input":{}}`))
			if err != nil || status != http.StatusOK {
				fmt.Println("the call after", size, "bytes:", status, err)
				lost++
			}
		}
		fmt.Printf("%d bytes: %d of %d calls failed\n", size, lost, 2*calls)
		failed += lost
	}
	if failed > 0 {
		os.Exit(1)
	}
}
