// Package responses translates the Responses API to chat completions and back,
// for engines that do not speak it themselves. Tools that run at a provider,
// such as web search, are left out and reported; free-form tools become
// functions with one text. It keeps no state: what came before is given to it.
package responses
