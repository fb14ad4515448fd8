// Package anthropic translates the Messages API to chat completions and back,
// for engines that do not speak it themselves. Extended thinking is passed on
// only where the engine reasons and the client asked to see it; its signatures
// do not exist, so that thoughts of earlier turns are left out.
package anthropic
