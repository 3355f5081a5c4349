"""The kernels. Most have a .comp file of the same name in shaders/."""
