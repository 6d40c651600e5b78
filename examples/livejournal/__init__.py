"""A site with journals and the jobs it has done in the background, over the 2005 draft of Gearman."""
