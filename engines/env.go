package engines

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// deniedEnv are variables that change what a process loads, where it writes or
// whom it calls. An adapter may set one only by naming it in its own list.
var deniedEnv = []string{
	"LD_*", "PYTHON*", "PATH", "HOME", "XDG_*", "TMPDIR", "HF_*", "TRANSFORMERS_CACHE",
	"TORCH_HOME", "TORCH_EXTENSIONS_DIR", "TRITON_CACHE_DIR", "CUDA_HOME", "CUDA_CACHE_PATH",
	"*_PROXY", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "NCCL_*_PLUGIN", "NCCL_CONF_FILE",
	"NCCL_DEBUG_FILE", "VK_*", "ONEAPI_*", "ZE_*", "OCL_ICD_*", "HSA_*", "GCONV_PATH", "MALLOC_*",
	"GGML_BACKEND_PATH", "GGML_RPC_*", "GGML_RDMA_*", "AIP_*", "LLAMA_*", "VLLM_*", "SGLANG_*",
}

// adapterEnv are the variables of the list above that an engine's own adapter
// sets.
var adapterEnv = map[string][]string{
	"llamacpp": {"LLAMA_API_KEY"},
	"sim":      {"LLAMA_API_KEY"},
}

// CheckEnv refuses an environment that an engine must not get. The process
// that starts an engine calls it on what the adapter made, as the last guard.
func CheckEnv(engine string, env []string) error {
	for _, entry := range env {
		name, value, ok := strings.Cut(entry, "=")
		if !ok || name == "" || strings.ContainsAny(entry, "\x00\n") {
			return &ProfileError{Engine: engine, Arg: name, Reason: "malformed environment variable"}
		}
		if slices.Contains(adapterEnv[engine], name) {
			continue
		}
		if pattern := denied(strings.ToUpper(name)); pattern != "" {
			return &ProfileError{Engine: engine, Arg: name,
				Reason: fmt.Sprintf("environment variable is denied (%s)", pattern)}
		}
		if strings.HasSuffix(value, ".so") {
			return &ProfileError{Engine: engine, Arg: name, Reason: "environment variable names a library"}
		}
	}
	return nil
}

func denied(name string) string {
	for _, pattern := range deniedEnv {
		if ok, err := path.Match(pattern, name); err == nil && ok {
			return pattern
		}
	}
	return ""
}
