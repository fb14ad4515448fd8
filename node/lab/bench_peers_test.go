package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Ports on the holder of what the relay is compared with.
const (
	proxyPort  = 9000
	nginxPort  = 9001
	sglangPort = 9002
)

// sglangVersion pins the router that is measured beside ours.
const sglangVersion = "0.3.2"

// peer starts a program on box b that forwards to its engine, and waits until
// it does.
func (s scene) peer(name string, cmd *exec.Cmd, port int, e *Engine) *benchTarget {
	s.tb.Helper()
	log := s.File(name+".log", "", 0o644)
	out, err := os.OpenFile(log, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		s.tb.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := s.b.start(cmd); err != nil {
		s.tb.Fatal(err)
	}
	go func() { _ = cmd.Wait() }()
	at := s.laptop.API(s.b, e.Key())
	at.Base = fmt.Sprintf("http://%s:%d", s.b.IP(), port)
	body := Chat("sim", "Hi", false, map[string]any{"max_tokens": 1})
	Eventually(s.tb, time.Minute, name+" forwards", func() (bool, string) {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		got, err := at.Ask(ctx, http.MethodPost, "/v1/chat/completions", body)
		said, _ := os.ReadFile(log)
		return err == nil && got.Status == http.StatusOK, fmt.Sprintf("%v %v\n%s", got, err, said)
	})
	return &benchTarget{name: name, at: at, pids: family(cmd.Process.Pid)}
}

// family is a process with all that it started.
func family(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i]))
		for _, list := range lists {
			raw, _ := os.ReadFile(list)
			for _, word := range strings.Fields(string(raw)) {
				if child, err := strconv.Atoi(word); err == nil && !slices.Contains(all, child) {
					all = append(all, child)
				}
			}
		}
	}
	return all
}

// proxy runs the plain proxy as a process of its own.
func (s scene) proxy(e *Engine) *benchTarget {
	s.tb.Helper()
	cmd, err := Helper("proxy")
	if err != nil {
		s.tb.Fatal(err)
	}
	cmd.Env = append(cmd.Env, "PROXY_TO="+e.URL())
	return s.peer("proxy", cmd, proxyPort, e)
}

// plainProxy is what anybody would write: the body read whole, as ours is, then
// the standard library's reverse proxy with immediate flushes.
func plainProxy() int {
	to, err := url.Parse(os.Getenv("PROXY_TO"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "proxy:", err)
		return 1
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		FlushInterval: -1,
		Transport:     &http.Transport{MaxIdleConnsPerHost: 512, DisableCompression: true},
	}
	err = http.ListenAndServe(fmt.Sprintf("0.0.0.0:%d", proxyPort), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		proxy.ServeHTTP(w, r)
	}))
	if !errors.Is(err, http.ErrServerClosed) {
		fmt.Fprintln(os.Stderr, "proxy:", err)
	}
	return 1
}

// nginxConf is nginx as a relay of streams: nothing buffered, connections kept.
const nginxConf = `worker_processes 1;
daemon off;
pid %[1]s/nginx.pid;
error_log stderr;
events { worker_connections 4096; }
http {
	access_log off;
	client_body_temp_path %[1]s/body;
	proxy_temp_path %[1]s/proxy;
	fastcgi_temp_path %[1]s/fastcgi;
	uwsgi_temp_path %[1]s/uwsgi;
	scgi_temp_path %[1]s/scgi;
	client_max_body_size 64m;
	client_body_buffer_size 16m;
	upstream engine { server %[2]s; keepalive 512; }
	server {
		listen 0.0.0.0:%[3]d;
		location / {
			proxy_pass http://engine;
			proxy_http_version 1.1;
			proxy_set_header Connection "";
			proxy_buffering off;
			proxy_read_timeout 300s;
		}
	}
}
`

// nginx runs nginx on box b; nil, with the reason, where there is none.
func (s scene) nginx(e *Engine) (*benchTarget, string) {
	s.tb.Helper()
	path, err := exec.LookPath("nginx")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/nginx"); err != nil {
			return nil, "nginx: not installed here (Debian's nginx-light)"
		}
	}
	dir := s.b.Dir
	conf := s.File("nginx.conf", fmt.Sprintf(nginxConf, dir, strings.TrimPrefix(e.URL(), "http://"), nginxPort), 0o644)
	return s.peer("nginx", exec.Command(path, "-p", dir, "-e", "stderr", "-c", conf), nginxPort, e), ""
}

// sglang runs sglang-router on box b; nil, with the reason, where it cannot be
// installed.
func (s scene) sglang(e *Engine) (*benchTarget, string) {
	s.tb.Helper()
	python, err := sglangPython()
	if err != nil {
		return nil, "sglang-router: " + strings.TrimSpace(err.Error())
	}
	cmd := exec.Command(python, "-m", "sglang_router.launch_router", "--worker-urls", e.URL(), "--host", "0.0.0.0",
		"--port", strconv.Itoa(sglangPort), "--policy", "cache_aware", "--log-level", "error", "--prometheus-port", strconv.Itoa(sglangPort+1))
	return s.peer("sglang-router", cmd, sglangPort, e), ""
}

// sglangPython makes the environment of sglang-router, once a machine.
func sglangPython() (string, error) {
	dir := filepath.Join(CacheDir(), "python-sglang-router-"+sglangVersion)
	bin, complete := filepath.Join(dir, "bin", "python"), filepath.Join(dir, "complete")
	return bin, withCacheLock(func() error {
		if _, err := os.Stat(complete); err == nil {
			return nil
		}
		if err := os.RemoveAll(dir); err != nil { // half made by a run that was ended
			return fmt.Errorf("remove half-made environment: %w", err)
		}
		if _, err := tool("python3", "-m", "venv", dir); err != nil {
			return err
		}
		if _, err := tool(bin, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "sglang-router=="+sglangVersion); err != nil {
			return err
		}
		return os.WriteFile(complete, nil, 0o600)
	})
}
