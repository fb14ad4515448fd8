package mesh

// Pulled says whether this box has the state of some other member: a pull has
// ended well since it started, or since its mesh was replaced.
func (m *Mesh) Pulled() bool { return m.puller.pulled.Load() == m.view.Load().generation+1 }
