// Runs the Go lines of docs/how-to/provider-apis.md, each with a streamed call. tests/python/sdk_lines.py lists the lines.
// sdk_lines_check.py writes their code into files next to this one, one file per client package.
//
// Reads {"addresses": {…}, "lines": [{name, model}]}. Writes one line of JSON for each text piece as it arrives, {name, piece}.
// At the end of each line of code writes {name, raised}: null, or the error.
package main

import (
	"context"
	"encoding/json"
	"os"
	"runtime/debug"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"google.golang.org/genai"
)

const hello = "Say hello in three languages."

var ctx = context.Background()

// call creates a client, requests a stream from `model` and passes each text piece to `report`.
type call func(model string, report func(string)) error

// calls maps line names to calls. The generated files fill it.
var calls = map[string]call{}

// addresses maps the addresses on the page to the addresses to use.
var addresses map[string]string

func address(ofPage string) string { return addresses[ofPage] }

// --- streamed calls --------------------------------------------------------------------------------------------------

func openaiChat(make func() openai.Client) call {
	return func(model string, report func(string)) error {
		client := make()
		stream := client.Chat.Completions.NewStreaming(ctx, openai.ChatCompletionNewParams{
			Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(hello)}})
		for stream.Next() {
			for _, choice := range stream.Current().Choices {
				report(choice.Delta.Content)
			}
		}
		return stream.Err()
	}
}

func openaiResponses(make func() openai.Client) call {
	return func(model string, report func(string)) error {
		client := make()
		stream := client.Responses.NewStreaming(ctx, responses.ResponseNewParams{
			Model: model, Input: responses.ResponseNewParamsInputUnion{OfString: openai.String(hello)}})
		for stream.Next() {
			if event := stream.Current(); event.Type == "response.output_text.delta" {
				report(event.Delta)
			}
		}
		return stream.Err()
	}
}

func anthropicMessages(make func() anthropic.Client) call {
	return func(model string, report func(string)) error {
		client := make()
		stream := client.Messages.NewStreaming(ctx, anthropic.MessageNewParams{
			Model: anthropic.Model(model), MaxTokens: 100,
			Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(hello))}})
		for stream.Next() {
			if event := stream.Current(); event.Type == "content_block_delta" {
				report(event.Delta.Text)
			}
		}
		return stream.Err()
	}
}

func gemini(make func() (*genai.Client, error)) call {
	return func(model string, report func(string)) error {
		client, err := make()
		if err != nil {
			return err
		}
		for chunk, err := range client.Models.GenerateContentStream(ctx, model, genai.Text(hello), nil) {
			if err != nil {
				return err
			}
			report(chunk.Text())
		}
		return nil
	}
}

func bedrock(make func() (*bedrockruntime.Client, error)) call {
	return func(model string, report func(string)) error {
		client, err := make()
		if err != nil {
			return err
		}
		answer, err := client.ConverseStream(ctx, &bedrockruntime.ConverseStreamInput{
			ModelId:  aws.String(model),
			Messages: []types.Message{{Role: types.ConversationRoleUser, Content: []types.ContentBlock{&types.ContentBlockMemberText{Value: hello}}}}})
		if err != nil {
			return err
		}
		stream := answer.GetStream()
		for event := range stream.Events() {
			if delta, is := event.(*types.ConverseStreamOutputMemberContentBlockDelta); is {
				if text, is := delta.Value.Delta.(*types.ContentBlockDeltaMemberText); is {
					report(text.Value)
				}
			}
		}
		return stream.Err()
	}
}

// --- the program -----------------------------------------------------------------------------------------------------

// outputLine is one line of the output. Piece is nil in the last line.
type outputLine struct {
	Name   string  `json:"name"`
	Piece  *string `json:"piece,omitempty"`
	Raised *string `json:"raised"`
}

func run(name, model string, out *json.Encoder) {
	var raised *string
	defer func() {
		if panicked := recover(); panicked != nil {
			text := string(debug.Stack())
			raised = &text
		}
		_ = out.Encode(outputLine{Name: name, Raised: raised})
	}()
	err := calls[name](model, func(piece string) {
		if piece != "" {
			_ = out.Encode(outputLine{Name: name, Piece: &piece})
		}
	})
	if err != nil {
		text := err.Error()
		raised = &text
	}
}

func main() {
	var asked struct {
		Addresses map[string]string
		Lines     []struct{ Name, Model string }
	}
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		panic(err)
	}
	addresses = asked.Addresses
	out := json.NewEncoder(os.Stdout)
	for _, line := range asked.Lines {
		run(line.Name, line.Model, out)
	}
}
