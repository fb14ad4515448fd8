package process

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"llmgw/engines"
	"llmgw/engines/kvevents"
	"llmgw/mesh/catalog"
)

// engine is one run of an engine process.
type engine struct {
	record   record
	adapter  engines.Adapter
	watch    *watch
	tail     *tail
	progress *progress
	ask      asker
	props    engines.Props
	load     engines.Load   // as it last told; guarded by the replica's mu, like cache
	cache    kvevents.State // as its events tell
	adopted  uint64         // times that its cache was emptied, as a former daemon told
	token    engines.TokenRequest
	loaded   time.Time
	launched time.Time // zero: it was found running
}

// tell writes what the engine said of itself when it became ready.
func (e *engine) tell(v *catalog.ReplicaStatus) {
	v.Context, v.Slots = e.props.Context, e.props.Slots
	v.LoadKnown, v.AtOnce, v.Waiting, v.KVUse, v.KVTokens, v.Cleared = false, 0, 0, 0, 0, e.record.Cleared
	if v.LoadMS = 0; !e.launched.IsZero() {
		v.LoadMS = e.loaded.Sub(e.launched).Milliseconds()
	}
	v.Lacks = e.adapter.Lacks(e.record.Shard.Profile)
	for _, a := range catalog.SplitList(e.props.Lacks) {
		v.Lacks = append(v.Lacks, catalog.Ability(a))
	}
}

// Directories and files of a replica, below its own directory.
const (
	logName  = "engine.log"
	homeName = "home"
	tempName = "tmp"
	cwdName  = "cwd"
)

// plan is what a launch needs and what can be found out without starting it.
type plan struct {
	shard   catalog.Shard
	adapter engines.Adapter
	binary  string
	flags   engines.Flags
}

// prepare finds what would keep the shard from starting: nothing in it changes
// by trying again.
func (r *replica) prepare(ctx context.Context, shard catalog.Shard) (plan, error) {
	p := plan{shard: shard}
	a, ok := r.sup.cfg.Adapters[shard.Profile.Engine]
	if !ok {
		return p, fmt.Errorf("this node has no adapter for engine %q", shard.Profile.Engine)
	}
	p.adapter = a
	if err := a.Validate(shard.Profile, shard.Devices); err != nil {
		return p, err
	}
	if info, err := os.Stat(shard.Weights); err != nil {
		return p, fmt.Errorf("find weights: %w", err)
	} else if !info.Mode().IsRegular() {
		return p, fmt.Errorf("find weights: %s is not a file", shard.Weights)
	}
	program := a.Program()
	if p.binary, ok = r.sup.cfg.Binary(a.Name(), program.Name); !ok {
		return p, fmt.Errorf("engine %s is not installed here; type: llmgw engines install %s", a.Name(), a.Name())
	}
	if err := r.makeDirs(); err != nil {
		return p, err
	}
	if program.Help != nil {
		flags, err := r.sup.help.ask(ctx, p.binary, program.Help, r.baseEnv(), filepath.Join(r.dir, cwdName))
		if err != nil {
			return p, err
		}
		p.flags = flags
	}
	// Made with a stand-in for port and key: what the adapter refuses is known
	// before either is taken.
	_, err := p.command(r.dir, 1, "key")
	return p, err
}

// command makes the one command of a shard and checks its environment.
func (p plan) command(dir string, port int, key string) (engines.Command, error) {
	commands, err := p.adapter.Commands(p.shard, engines.Endpoint{
		Host: loopback, Port: port, Key: key, Binary: p.binary, RunDir: dir, Flags: p.flags,
	})
	if err != nil {
		return engines.Command{}, err
	}
	if len(commands) != 1 {
		return engines.Command{}, fmt.Errorf("engine %s wants %d processes; one is supported", p.adapter.Name(), len(commands))
	}
	return commands[0], engines.CheckEnv(p.adapter.Name(), commands[0].Env)
}

// makeDirs makes the replica's directories. The temporary one is emptied: what
// a killed engine left there is of no use.
func (r *replica) makeDirs() error {
	if err := os.RemoveAll(filepath.Join(r.dir, tempName)); err != nil {
		return fmt.Errorf("make engine directory: %w", err)
	}
	for _, name := range []string{homeName, tempName, cwdName} {
		if err := os.MkdirAll(filepath.Join(r.dir, name), 0o700); err != nil {
			return fmt.Errorf("make engine directory: %w", err)
		}
	}
	return nil
}

// baseEnv is the environment of every engine. Nothing of ours is inherited.
func (r *replica) baseEnv() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + filepath.Join(r.dir, homeName),
		"TMPDIR=" + filepath.Join(r.dir, tempName),
		"LANG=C.UTF-8",
	}
}

// spawn starts the process of a plan. The pidfile is written before, so that a
// daemon that dies between the two can still find the process by its marker.
func (r *replica) spawn(p plan) (*engine, error) {
	e, cmd, err := r.arrange(p)
	if err != nil {
		return nil, err
	}
	e.launched = r.sup.cfg.Now()
	if err := r.begin(e, cmd); err != nil {
		r.sup.ports.release(e.record.Port, r.sup.cfg.Now())
		cgroupRemove(e.record.Cgroup)
		return nil, errors.Join(err, removePidfile(r.dir))
	}
	return e, nil
}

// arrange takes a port and a key and makes the command.
func (r *replica) arrange(p plan) (*engine, *exec.Cmd, error) {
	var random [32]byte
	if _, err := io.ReadFull(r.sup.cfg.Entropy, random[:]); err != nil {
		return nil, nil, fmt.Errorf("make engine key: %w", err)
	}
	key, run := hex.EncodeToString(random[:24]), hex.EncodeToString(random[24:])
	print, err := fingerprint(p.shard)
	if err != nil {
		return nil, nil, fmt.Errorf("make fingerprint: %w", err)
	}
	port, err := r.sup.ports.lease(r.sup.cfg.Now())
	if err != nil {
		return nil, nil, err
	}
	c, err := p.command(r.dir, port, key)
	if err != nil {
		r.sup.ports.release(port, r.sup.cfg.Now())
		return nil, nil, err
	}
	cmd := exec.Command(c.Path, c.Args...)
	cmd.Env = append(append(r.baseEnv(), c.Env...), runVariable+"="+run)
	if cmd.Dir = c.Dir; cmd.Dir == "" {
		cmd.Dir = filepath.Join(r.dir, cwdName)
	}
	e := r.newEngine(p.adapter, record{
		Boot: r.sup.boot, Run: run, Port: port, Key: key, Epoch: p.shard.Epoch,
		Fingerprint: print, Cgroup: r.sup.cgroups.make(run), Shard: p.shard,
	}, false)
	return e, cmd, nil
}

func (r *replica) newEngine(a engines.Adapter, rec record, running bool) *engine {
	probe := a.Probe()
	return &engine{
		record: rec, adapter: a, adopted: rec.Cleared,
		tail:     newTail(filepath.Join(r.dir, logName), rec.Key, running),
		progress: newProgress(r.sup.cfg.Now()),
		ask:      asker{client: r.sup.client, url: baseURL(rec.Port), key: rec.Key, probe: probe},
		token:    probe.Token(rec.Shard),
	}
}

// begin starts the process and completes its pidfile.
func (r *replica) begin(e *engine, cmd *exec.Cmd) error {
	if err := writePidfile(r.dir, e.record); err != nil {
		return err
	}
	if err := startLogged(cmd, filepath.Join(r.dir, logName), e.record.Cgroup); err != nil {
		return fmt.Errorf("start engine: %w", err)
	}
	e.watch = watchChild(cmd)
	e.record.PID = cmd.Process.Pid
	err := r.identify(e)
	if err == nil {
		err = writePidfile(r.dir, e.record)
	}
	if err != nil {
		return errors.Join(err, e.record.group().kill(r.sup.cfg.Timing.Kill))
	}
	return nil
}

// identify records what tells the process from others. One that has ended
// already has nothing to tell: the load will see its end.
func (r *replica) identify(e *engine) error {
	stat, err := readStat(e.record.PID)
	if err == nil {
		e.record.Start = stat.start
		e.record.ArgvHash, err = argvHashOfNew(e.record.PID, e.watch.exited)
	}
	if err == nil {
		return nil
	}
	select {
	case <-e.watch.exited:
		return nil
	case <-time.After(time.Second): // the end is told a little after it can be seen
		return err
	}
}

// startLogged starts cmd in a session of its own with its output in a fresh
// log file; the former file is kept as one generation.
func startLogged(cmd *exec.Cmd, path, cgroup string) error {
	if err := os.Rename(path, path+".1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	log, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if cgroup == "" {
		return cmd.Start()
	}
	dir, err := os.Open(cgroup)
	if err != nil {
		return err
	}
	defer dir.Close()
	cmd.SysProcAttr.UseCgroupFD, cmd.SysProcAttr.CgroupFD = true, int(dir.Fd())
	return cmd.Start()
}
